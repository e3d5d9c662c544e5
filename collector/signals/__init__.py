"""The collected signals, a file per subject; of what records, the only room that may import torch.

Signals do not import each other.
"""
