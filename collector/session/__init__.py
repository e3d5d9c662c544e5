"""The Profiler and what it stands on: the place of the run, the recording, the start of the sidecar.

Must not import torch: the signals do.
"""
