"""Propose loader settings from a short measurement, by simulating the pipeline.

The simulation stands on the standard library only, because the server needs it too. Must not import torch.
"""
