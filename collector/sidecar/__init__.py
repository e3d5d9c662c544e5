"""Turns event rings into tables, in a process of its own, in analyse(), or offline in recover.

May import `collector.ring`, `collector.traces`, `collector.format.run`, `collector.notes` and what these stand on. Must not
import torch.
"""
