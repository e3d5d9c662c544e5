"""Event logs, in shared memory or in files: int64 words or records, one writer per ring, lost events counted.

Must not import torch or pyarrow; numpy only for reading.
"""
