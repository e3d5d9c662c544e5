"""What is looked for in a recorded window, one family of sightings per file.

May import what stands below `profiler_server.analysis.replay`. Must not import torch.
"""
