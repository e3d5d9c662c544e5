"""Event logs in shared memory: one int64 per event, one writer per ring, lost events counted.

Must not import torch or pyarrow; numpy only for reading.
"""
