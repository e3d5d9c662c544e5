"""Processes that decode pieces of one file beside the reader. May import `decode` only."""
