"""The Profiler and what it stands on: the place of the run, the recording, the start of the sidecar.

May import every room of the collector but `launch` and `demo`. Must not import torch: the signals do.
"""
