"""The rules on several ranks."""

from __future__ import annotations

EXPOSED_FRAC = 0.10
"""Share of the step held by communication, the wait for slower ranks taken out."""

UNSYNCED_FRAC = 0.05
"""Share of the step in reductions that accumulating without them would save."""

GLOO_FRAC = 0.05
"""Share of the step held by gloo with gradients on CUDA devices."""

COPIES_FRAC = 0.05
"""Share of the step in copies of gradients."""

COPIED_BYTES_PER_S = 5e9
"""What one thread copies in memory, reading and writing: a usual figure, not measured."""

ROTATING_FRAC = 0.10
"""Share of the step in which ranks wait for whichever is the slowest."""

RANK_LOADER_FRAC = 0.10
"""Share of the step that one rank waits for data longer than the others."""

USUAL_BUCKET_BYTES = 10 << 20
"""Buckets of this size on average, such as those of the default cap of 25 MiB, are not small."""
