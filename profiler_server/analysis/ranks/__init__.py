"""Ranks side by side, and the collectives that join them.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
