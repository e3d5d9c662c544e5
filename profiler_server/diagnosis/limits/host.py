"""Limits of the rules on threads, the host, its clocks, and the cost of recording."""

from __future__ import annotations

COMPUTE_FRAC = 0.60
"""Threads and their placement matter from this share of computing."""

WORKER_CORES = 1.5
"""A worker that uses more cores than this computes with threads of its own."""

PYTHON_CORES = 0.15
"""Other Python threads of the training process matter if they use at least this share of a core."""

THROTTLED_FRAC = 0.05
"""Throttling is reported if the control group is stopped for this share of the time."""

MEMORY_STALL_FRAC = 0.10
"""Memory pressure is reported if something waits for memory for this share of the time."""

THREADS_COMPUTE_FRAC = 0.30
"""More threads than cores matter if computing takes at least this share of the step."""

CLOCK_LOST_FRAC = 0.05
"""A held clock is reported if a device loses this share of its clock to heat or another limit of the hardware, over all
samples."""

RECORDING_FRAC = 0.03
"""The cost of recording is reported from this share of the step."""

RECORDING_LARGE_FRAC = 0.10
"""Share of the step from which recording changes what it measures."""
