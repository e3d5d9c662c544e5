"""Processes that decode pieces of one file for the reader. May import `decode` only."""
