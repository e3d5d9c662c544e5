"""The Profiler and its foundations: the run's folder, the recording, the start of the sidecar.

Must not import torch: the signals do.
"""
