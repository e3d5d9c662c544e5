"""Frozen types with the facts that rules, sentences and pages read. Field names contain the units.

These modules may import thresholds and the model of the training loop. They measure nothing, and read no file, rank or
cache.
"""
