"""Two runs set against each other.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
