"""One file per collected signal; of what records, the only room that may import torch.

May import `collector.context` and what it stands on, `collector.workers` and `collector.marks`. Signals do not import
each other.
"""
