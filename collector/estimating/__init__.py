"""Propose loader settings from a short measurement, by simulating the pipeline.

The simulation imports only the standard library, because the server needs it too. Must not import torch.
"""
