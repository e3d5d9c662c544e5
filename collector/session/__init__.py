"""The Profiler and what it stands on: the run's folder, the recording, the sidecar's start and end.

Must not import torch: the signals do.
"""
