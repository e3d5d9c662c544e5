"""The event log in shared memory: one int64 per event, one producer per ring, losses counted.

Must not import torch or pyarrow; numpy on the reading side only.
"""
