"""Turns event rings into tables, in a process of its own, in analyse(), or offline in recover.

Must not import torch.
"""
