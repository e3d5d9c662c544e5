"""What is told of a trace and of samples: gaps, launches, clocks, and loops over rows."""

from __future__ import annotations

KERNEL_WAIT_NS = 30_000
"""A gap between kernels that is shorter, and no late launch, is the device's own (HTA)."""

LONG_DELAY_NS = 100_000
"""Work that begins so long after the end of its launch is late."""

LONG_CALL_NS = 50_000
"""A launch that takes longer is slow."""

CLOCK_SAMPLES = 10
"""Of fewer samples of a clock nothing is told."""

MEMORY_SAMPLES = 24
"""Of fewer samples of the memory of a process it is not told how that went."""

LEAST_ROWS = 16
"""Rows that a loop goes over: fewer may be the heads, experts or scales of a model, whose layers differ."""

OF_ROWS_FRAC = 0.75
"""Operators that are called at least so often for each row belong to the loop; a condition may leave some rows out."""

CALL_NS, PYTHON_NS = 2_000, 500
"""What one call of an operator costs the host beside its arithmetic, and the Python around it."""

LEAST_SEEN_FRAC = 0.5
"""Of what a window shows of the loop beside its work: each call is longer there by what recording it costs."""

LARGE_CALL_NS = 30_000
"""Where the arithmetic is not known, a call of the loop that takes longer is taken to work for the rest of it."""
