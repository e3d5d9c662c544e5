"""What every signal is given: the log, the step counter, the loaders, the undo, and what runs once torch is imported.

Must not import torch or a signal.
"""
