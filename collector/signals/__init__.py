"""One file per collected signal; the only room that may import torch.

May import `collector.ring` and `collector.schema`. Signals do not import each other.
"""
