"""Avoidable patterns (sightings) in a recorded window, one family per file."""
