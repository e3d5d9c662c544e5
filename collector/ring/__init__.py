"""Event logs, which pass events to the sidecar and outlive their writer. They hold int64 words or records, in shared
memory or in files; each log has one writer, and lost events are counted.

Must not import torch or pyarrow; numpy only for reading.
"""
