"""The event log in shared memory: one int64 per event, one producer per ring, losses counted.

May import `collector.format.schema` (and numpy on the reading side). Must not import torch, pyarrow or any other room.
"""
