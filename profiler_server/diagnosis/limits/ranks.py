"""Limits of the rules on several ranks."""

from __future__ import annotations

EXPOSED_FRAC = 0.10
"""Communication is reported if it holds the rank for this share of the step, without the wait for slower ranks."""

UNSYNCED_FRAC = 0.05
"""Needless reductions are reported if accumulating without synchronising would save this share of the step."""

GLOO_FRAC = 0.05
"""Gloo with gradients on CUDA devices is reported if it holds this share of the step."""

COPIES_FRAC = 0.05
"""Copies of gradients are reported from this share of the step."""

COPIED_BYTES_PER_S = 5e9
"""Bytes per second that one thread copies in memory, reading and writing: a usual figure, not measured."""

ROTATING_FRAC = 0.10
"""Turns are reported if the ranks wait this share of the step for whichever rank is slowest."""

RANK_LOADER_FRAC = 0.10
"""A rank's loader is reported if the rank waits for data longer than the others by this share of the step."""

USUAL_BUCKET_BYTES = 10 << 20
"""Buckets of this size on average, such as those of the default cap of 25 MiB, are not small."""
