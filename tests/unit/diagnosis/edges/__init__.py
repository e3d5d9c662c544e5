"""Where each threshold lies and what it switches, one file for each part of `profiler_server/diagnosis/limits`."""
