"""Decode the bytes of a file to columns of its events, chunk by chunk. Must not import the neighbouring rooms."""
