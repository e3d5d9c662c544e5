"""The time that a job of many ranks would take if its ranks were alike, from a replay of its operations with other
durations.

The model is that of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025).
"""
