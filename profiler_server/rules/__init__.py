"""One file per suggestion, and the ranking and prediction that all share.

May import profiler_server.analysis. Must not import a room above it, or torch.
"""
