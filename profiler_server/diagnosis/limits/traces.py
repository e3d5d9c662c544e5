"""Limits for traces and samples: gaps, launches, clocks, and loops over rows."""

from __future__ import annotations

KERNEL_WAIT_NS = 30_000
"""A shorter gap between kernels, without a late launch, is the device's own (HTA)."""

LONG_DELAY_NS = 100_000
"""Work that begins this long after the end of its launch is late."""

LONG_CALL_NS = 50_000
"""A launch that takes longer is slow."""

CLOCK_SAMPLES = 10
"""Samples of a clock below which it is not judged."""

MEMORY_SAMPLES = 24
"""Samples of a process's memory below which its growth is not judged."""

LEAST_ROWS = 16
"""Least rows of a loop: fewer may be the heads, experts or scales of a model with unlike layers."""

OF_ROWS_FRAC = 0.75
"""Operators called at least this often per row belong to the loop; a condition may skip some rows."""

CALL_NS, PYTHON_NS = 2_000, 500
"""Host time of one operator call beside its arithmetic, and of the Python around the call."""

LEAST_SEEN_FRAC = 0.5
"""Least share of the loop's recorded time beside its work that is real: recording lengthens each call."""

LARGE_CALL_NS = 30_000
"""If the arithmetic is unknown, the time of a call above this counts as work."""
