"""Memory of the device and the host, and how busy the processors were.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
