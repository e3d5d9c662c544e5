"""The rules on several ranks."""

from __future__ import annotations

EXPOSED_FRAC = 0.10
"""Share of the step in which communication holds the rank, without the wait for slower ranks."""

UNSYNCED_FRAC = 0.05
"""Share of the step in reductions that accumulating without synchronising would save."""

GLOO_FRAC = 0.05
"""Share of the step held by gloo with gradients on CUDA devices."""

COPIES_FRAC = 0.05
"""Share of the step in copies of gradients."""

COPIED_BYTES_PER_S = 5e9
"""Bytes per second that one thread copies in memory, reading and writing: a usual figure, not measured."""

ROTATING_FRAC = 0.10
"""Share of the step in which ranks wait for the slowest of each step."""

RANK_LOADER_FRAC = 0.10
"""Share of the step by which one rank waits longer for data than the others."""

USUAL_BUCKET_BYTES = 10 << 20
"""Buckets of this size on average, such as those of the default cap of 25 MiB, are not small."""
