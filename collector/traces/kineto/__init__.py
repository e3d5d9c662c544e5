"""How a Kineto trace becomes tables: `decode`, `classify`, `steps`, `tables`, one after the other.

Must not import torch or a format.
"""
