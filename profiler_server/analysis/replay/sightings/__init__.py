"""Avoidable patterns (sightings) in a recorded window, one family of patterns per file.

Each `find_` function returns None for a window without its pattern.
"""
