"""The Profiler and what it holds up: the place of the run, the recording, the start of the sidecar."""
