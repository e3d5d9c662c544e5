"""Decode the bytes of a file to columns of its events, chunk by chunk. Must not import the packages next to this one."""
