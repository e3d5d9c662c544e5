"""The replay of a recorded window: when work waits for other work, and what is looked for in it."""

from __future__ import annotations

CALL_RETURN_NS = 5_000.0
"""What a call that waits takes where there is nothing to wait for."""

MOST_LAG_NS = 50_000.0
"""The longest time from a launch, or from the work before, to the start of work that counts as the device's own."""

LAG_NS, GAP_NS = 10_000.0, 2_000.0
"""What it takes from a launch, and from the work before, where the window has no example."""

USUAL_PERCENT = 95
"""Percentile of those times in a window up to which they are the device's own; what is later has another reason."""

LATE_RETURN_NS = 100_000.0
"""A wait that goes on for so much longer than its work waited for something that is not known, too."""

UNKNOWN_NS = 10_000.0
"""Work that begins so much later than the graph explains waited for something that is not known."""

TOLERANCE_NS = 2_000
"""Clocks of host and device disagree by so much."""

FULL_QUEUE = 500
"""A long launch waits for a place in the queue when at least so many launches are ahead of it (CUDA takes about 1,000)."""

LONG_LAUNCH_NS = 100_000
"""A launch takes long from this length on."""

LONG_TURN_NS, LAST_FRAC = 1_000_000, 0.05
"""From this length on a wait is over when the other thread has done all but this share of it, though it goes on."""

NEAR_NS = 30_000.0
"""Work that begins so soon after the end of other work may have waited for it."""

AT_ONCE_NS = 5_000.0
"""Work that is late for no known reason, and begins so soon after the end of other work, has waited for it."""

SHORT_PYTHON_NS = 200_000
"""Python between operators that is shorter belongs to the model; longer stretches are the loop's own."""

COPY_CALL_NS = 5_000
"""What a call that copies without blocking takes."""

LEAST_TRIED_FRAC = 0.005
"""Changes that cannot save so much of the window are not replayed."""

SMALL_COPY_BYTES = 64 << 10
"""Copies of at most this size could be part of a larger one."""

LARGE_COPY_BYTES = 1 << 20
"""Copies from this size on take long, and so does casting what they copy."""

LEAST_SMALL_COPIES = 20
"""Small copies per step from which one larger copy is worth it."""

RIGHT_BEFORE_NS = 200_000
"""An operator that ended so shortly before a copy made what is copied."""

LEAST_CHAIN = 3
"""Elementwise kernels right behind each other from which fusing them saves reading and writing."""

MOST_BETWEEN = 12
"""Operators between a softmax and a product, from which they are no attention any more."""

LEAST_KEYS = 32
"""Scores of fewer keys are no attention that a fused kernel would make faster."""

ALLOCATING_STEPS = 3
"""Steps from which calls to the allocator are more than the start of the training."""

KEPT_GAIN = 0.5
"""A poor version removes half of the waits: a value that later code needs must be waited for somewhere."""

CAPS_MIB = (5, 10, 25, 50, 100)
"""Sizes of larger buckets that are tried."""

LEAST_BUCKETS = 3
"""Buckets of one backward from which some of them can be joined without sending all gradients at its end."""

MOST_MISFIT_FRAC = 0.2
"""Reductions whose shortest times are further from the fit are long for another reason than their size."""

LEAST_SIZES_RATIO = 1.5
"""The largest message is at least so many times the smallest: else latency and bandwidth cannot be told apart."""

LEAST_IN_A_ROW = 60
"""Operators in a row, all of kinds that have a form for many tensors, from which they are a loop over parameters."""

MOST_KINDS = 4
"""And of at most so many kinds: more are a model."""

TINY_NS, TINY_FACTOR = 5_000.0, 0.3
"""A kernel shorter than this takes most of its time to begin and to end: one for many tensors does that once."""

LEAST_RECORDED = 50
"""Operators of a window that are recorded for a backward, from which that is no matter of single ones."""

ALIGNED = 8
"""Tensor cores take 16-bit numbers in groups of so many."""
