"""Limits of the replay of a recorded window: when work waits for other work, and which patterns are searched for."""

from __future__ import annotations

CALL_RETURN_NS = 5_000.0
"""Time of a synchronising call that has nothing to wait for."""

MOST_LAG_NS = 50_000.0
"""Longest delay from a launch, or from earlier work, to the start of work that counts as the device's own."""

LAG_NS, GAP_NS = 10_000.0, 2_000.0
"""Default delay from a launch, and from earlier work, for a window without an example."""

USUAL_PERCENT = 95
"""Percentile of the delays in a window up to which they are the device's own; longer delays have another reason."""

LATE_RETURN_NS = 100_000.0
"""A wait that lasts this much longer than its work also waited for something unknown."""

UNKNOWN_NS = 10_000.0
"""Work that begins this much later than the graph explains waited for something unknown."""

TOLERANCE_NS = 2_000
"""Largest disagreement of the clocks of host and device."""

FULL_QUEUE = 500
"""A long launch waits for room in the queue if this many launches are ahead of it (CUDA allows about 1,000)."""

LONG_LAUNCH_NS = 100_000
"""Duration from which a launch is long."""

LONG_TURN_NS, LAST_FRAC = 1_000_000, 0.05
"""After a pause of at least this duration, the other thread may still work, if its last finished piece ended within
this share of the pause before the end of the pause."""

NEAR_NS = 30_000.0
"""Work that begins within this time after other work ends may have waited for that work."""

AT_ONCE_NS = 5_000.0
"""Work that is late for no known reason, and begins within this time after other work ends, has waited for that work.
"""

SHORT_PYTHON_NS = 200_000
"""Python between operators that is shorter belongs to the model; longer stretches belong to the loop."""

COPY_CALL_NS = 5_000
"""Time of a call that copies without blocking."""

LEAST_TRIED_FRAC = 0.005
"""Changes that can save less than this share of the window are not replayed."""

SMALL_COPY_BYTES = 64 << 10
"""Largest size of copies that could be joined into a larger copy."""

LARGE_COPY_BYTES = 1 << 20
"""Size from which a copy takes long, and from which casting the copied data takes long."""

LEAST_SMALL_COPIES = 20
"""Small copies per step from which one larger copy is worthwhile."""

RIGHT_BEFORE_NS = 200_000
"""An operator that ended within this time before a copy made the copied data."""

LEAST_CHAIN = 3
"""Adjacent elementwise kernels from which fusing them saves reading and writing."""

MOST_BETWEEN = 12
"""Operators between a softmax and a product above which the two are not attention."""

LEAST_KEYS = 32
"""Keys below which attention would not gain from a fused kernel."""

ALLOCATING_STEPS = 3
"""Steps with allocator calls from which the calls are more than the start of the training."""

KEPT_GAIN = 0.5
"""Share of the waits that a poor fix removes: a value that later code needs must be waited for somewhere."""

CAPS_MIB = (5, 10, 25, 50, 100)
"""Sizes of larger buckets to try, MiB."""

LEAST_BUCKETS = 3
"""Least buckets of one backward that allow joining some without sending all gradients at its end."""

MOST_MISFIT_FRAC = 0.2
"""Reductions whose shortest times differ more than this from the fit have another reason than their size."""

LEAST_SIZES_RATIO = 1.5
"""Least ratio of the largest to the smallest message; below it latency and bandwidth cannot be separated."""

LEAST_IN_A_ROW = 60
"""A loop over parameters has at least this many operators in a row, all of kinds with a form for many tensors."""

MOST_KINDS = 4
"""A loop over parameters has operators of at most this many kinds: more kinds are a model."""

TINY_NS, TINY_FACTOR = 5_000.0, 0.3
"""A kernel shorter than this spends most of its time on start and end. One kernel for many tensors has that cost once.
"""

LEAST_RECORDED = 50
"""Operators recorded for a backward from which a window is judged: fewer are single cases."""

ALIGNED = 8
"""Multiple of 16-bit numbers that tensor cores process."""
