"""Comparison of two runs, and of two lists of runs by the gate."""
