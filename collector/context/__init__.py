"""The tools given to every signal: the log, the step counter, the loaders, the undo, and calls after an import of
torch.

Must not import torch or a signal.
"""
