"""Limits for traces and samples: gaps, launches, and clocks."""

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

PARALLEL_NS = 100_000
"""An operator that takes longer can use several threads: starting them costs some 10 µs."""

COVERED_PRODUCTS_FRAC = 0.9
"""The utilisation is given if the operations are known for at least this share of the time of kernels that multiply."""

LEAST_PRODUCTS_FRAC = 0.2
"""The utilisation is given if products with known operations take at least this share of the time of all kernels: their
names may hide others that multiply."""
