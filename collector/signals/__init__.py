"""The collected signals, a file per subject; the only room of the recording that may import torch.

Signals do not import each other.
"""
