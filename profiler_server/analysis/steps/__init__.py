"""Where the time of steps goes: outliers, stability, what held training up, compilations, windows.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
