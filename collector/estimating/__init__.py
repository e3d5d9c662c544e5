"""Propose loader settings from a short measurement, by simulating the pipeline.

The simulation imports only the standard library, because the server uses the simulation too. Must not import torch.
"""
