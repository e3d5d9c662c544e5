"""The data pipeline: queues, stages, batches, and the simulated loop that predictions are made with.

May import what stands below `profiler_server.analysis`, and its other rooms. Must not import torch.
"""
