"""Avoidable patterns (sightings) in a recorded window, one family of patterns per file. Rules read how often a pattern
occurs, and what its absence would save.

Each `find_` function returns the sighting of its pattern, and None for a window without the pattern.
"""
