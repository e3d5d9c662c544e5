"""What a device did: busy and idle time, launches, precision.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
