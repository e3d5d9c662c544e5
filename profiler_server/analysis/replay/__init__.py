"""The dependency graph of a recorded window: replayed as it was, replayed with changes, and its critical path.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
