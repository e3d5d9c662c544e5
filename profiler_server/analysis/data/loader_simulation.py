"""The simulator of a DataLoader and its loop, which lies in the collector: `collector.estimate` needs it too."""

from collector.estimating.simulation import Job, LoopModel, Receive, bound_workers, find_workers, simulate

__all__ = ["Job", "LoopModel", "Receive", "bound_workers", "find_workers", "simulate"]
