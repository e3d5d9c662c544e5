"""Frozen types with the facts that rules, sentences and pages read. Field names contain the units.

They may import thresholds and the loop model. They measure nothing, and read no file, rank or cache.
"""
