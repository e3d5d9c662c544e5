"""From the bytes of a file to columns of its events, chunk by chunk. Must not import the rooms beside it."""
