"""Propose loader settings from a short measurement, by simulating the pipeline.

May import `collector.format.schema` and `collector.environment`; the simulation imports the standard library only, because the
server needs it too. Must not import torch.
"""
