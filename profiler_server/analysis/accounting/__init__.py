"""Each nanosecond of a step given to one category, as other tools count it.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
