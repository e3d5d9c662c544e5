"""The tools that every signal records with: log, step counter, numbered loaders, undo, and calls after an import.

Must not import torch or a signal.
"""
