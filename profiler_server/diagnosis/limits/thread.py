"""Limits of the rules on the recorded thread in and between its steps."""

from __future__ import annotations

UPDATE_FRAC = 0.10
"""The loop of the update is examined if the update takes this share of the step."""

OUTSIDE_FRAC = 0.10
"""Time outside the known calls is reported from this share of the usual step."""

CHECKPOINT_FRAC = 0.05
"""Checkpoints are reported if saving takes this share of the steps' time."""

BACKGROUND_SAVED_FRAC = 0.95
"""Share of a save that another thread takes over; the recorded thread still copies the state."""

GC_FRAC, MIN_COLLECTED = 0.05, 3
"""Garbage collection is reported from this share of the step, and this number of steps with one: one long collection, such
as at a start, says nothing about the next hour.
"""

STALL_FRAC = 0.05
"""Evenly spaced stalls are reported if they cost this share of the time."""

MIN_STALLS, MOST_STALLS_FRAC = 3, 0.34
"""Fewer stalls than this are chance; a larger share of the steps than this is another kind of step."""

EVEN_DISTANCE_FRAC = 0.2
"""Stalls are evenly spaced if their distances differ from the median by at most this share of it."""

ALIKE_FACTOR = 3.0
"""Stalls have the same cause if three in four are within this factor of the median stall."""

EXPLAINED_FRAC = 0.5
"""Checkpoints or recompilations explain the stalls if they take at least this share of the stalls' cost."""

MIN_RECOMPILES, RECOMPILE_FRAC = 2, 0.02
"""Recompilations are reported from this number, and this share of the steps' time."""

LOGGING_FRAC = 0.05
"""Logging is reported if calls of a logging library take this share of the step."""

LOGGED_FRAC = 0.6
"""Time outside the known calls is attributed to logging if at least this share of it is logging."""

COLLECTED_FRAC = 0.6
"""Time outside the known calls is attributed to garbage collection if at least this share of it is. A smaller share
results from the other work there."""

COLD_FRAC = 0.05
"""A collection reads all objects, so the next step finds cold caches. In runs with large heaps that cost about 2 % of
the collection; a larger effect is not attributed to it."""

FUSED_UPDATE_NS, FUSED_TENSOR_NS, FUSED_PARAMETER_NS = 300_000, 6_000, 1.0
"""Time of a fused update on a processor, clearing gradients included. In 84 programs with 5 to 444 tensors and 8,000 to
7 million parameters it was 0.6 to 1.7 times this, and more only where gradients are clipped in few tensors."""

LEAST_FUSED, MOST_FUSED = 0.6, 1.7
"""Least and most measured time of a fused update, as multiples of the time from the `FUSED_` constants."""

LOOPED_TENSOR_NS, LOOPED_PARAMETER_NS = 150_000, 12.0
"""Longest time of a looped update on a processor. 25 to 40 microseconds per tensor and 2 to 6 ns per parameter were
measured, slow processors included. A longer update has another reason, such as a busy host."""

LEAST_UPDATE_SAVED = 0.01
"""Least share of an update that a fused update saves."""

LOOP_SAVED = (0.6, 0.36, 0.9)
"""Shares of the update saved if its sizes are unknown: usually, at least and at most."""

RARER_STEPS = 50
"""Work between the steps is suggested to run once in this many steps."""

LEAST_OUTSIDE_SAVED = 0.25
"""Share of the promised gain that a poor version of less work between the steps saves."""

ALIKE_FRAC = 0.1
"""A median within this share of the mean is not shown beside it."""

GRADED_FRAC = 0.2
"""Time outside of training is a forward that no module runs if its backward takes at least this share of its time. A solver
may keep its factor for the backward."""
