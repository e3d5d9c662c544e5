"""The signals: each records one kind of data in the training process. A file per subject; the only room of the
recording that may import torch.

Signals do not import each other.
"""
