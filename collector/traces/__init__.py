"""Trace files to tables, one file per format.

May import `collector.parts` and `collector.schema`. Must not import torch.
"""
