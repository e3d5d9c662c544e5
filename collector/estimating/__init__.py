"""Propose the settings of a DataLoader from a short measurement, by a simulation of the loader and the training loop.

The simulation imports only the standard library, because the server uses the simulation too. Must not import torch.
"""
