"""Comparison of ranks, and the collectives that join ranks."""
