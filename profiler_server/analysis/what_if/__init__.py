"""The time of a job of many ranks if its ranks were alike: a replay of its operations with other lengths.

The model is that of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025).
"""
