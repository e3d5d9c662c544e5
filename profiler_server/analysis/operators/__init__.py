"""Operators, kernels and modules: sums, groups, operations and bytes.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
