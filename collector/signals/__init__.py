"""One file per collected signal; of what records, the only room that may import torch.

Signals do not import each other.
"""
