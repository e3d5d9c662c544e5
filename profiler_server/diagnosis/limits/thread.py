"""The rules on what the training thread does in and between its steps."""

from __future__ import annotations

UPDATE_FRAC = 0.10
"""Share of the step in the update from which its loop is looked at."""

OUTSIDE_FRAC = 0.10
"""Share of the usual step outside of the known calls."""

LOOPED_FRAC = 0.20
"""Share of the step that loops over rows take; of less than that a window cannot tell how much is left without them."""

CHECKPOINT_FRAC = 0.05
"""Share of the steps' time in saving."""

BACKGROUND_SAVED_FRAC = 0.95
"""Part of a save that another thread takes over; the copy of the state that it writes is made by the training thread."""

GC_FRAC = 0.05
"""Share of the step in garbage collection."""

STALL_FRAC = 0.05
"""Share of the time that stalls at even distance cost."""

MIN_STALLS, MOST_STALLS_FRAC = 3, 0.34
"""Fewer stalls than this are chance; more than this share of the steps are no stalls but steps of another kind."""

EVEN_DISTANCE_FRAC = 0.2
"""Distances between stalls count as even when they differ from the median by no more than this share of it."""

ALIKE_FACTOR = 3.0
"""Stalls of the same cause are at most so many times as long or as short as the median one, three in four of them."""

EXPLAINED_FRAC = 0.5
"""Stalls are explained by checkpoints or recompilations when these take at least this share of what the stalls cost."""

MIN_RECOMPILES, RECOMPILE_FRAC = 2, 0.02
"""Recompilations, and the share of the steps' time that they take."""

LOGGING_FRAC = 0.05
"""Share of the step in calls of a library that logs."""

LOGGED_FRAC = 0.6
"""Time outside of the known calls is logging when at least this share of it is."""

COLLECTED_FRAC = 0.6
"""And garbage collection when at least this share of it is; a smaller share is a consequence of the other work there."""

COLD_FRAC = 0.05
"""A collection reads all objects that there are, so the step after it finds its caches cold. In runs with large heaps
that cost about 2 % of the collection; more than this is not believed to be due to it."""

FUSED_UPDATE_NS, FUSED_TENSOR_NS, FUSED_PARAMETER_NS = 300_000, 6_000, 1.0
"""What a fused update on a processor takes, clearing gradients included: of 84 programs with 5 to 444 tensors and 8,000 to 7
million parameters it was between 0.6 and 1.7 times this, more only where gradients are clipped in few tensors."""

LEAST_FUSED, MOST_FUSED = 0.6, 1.7
"""Of that, the least and the most that was measured."""

LOOPED_TENSOR_NS, LOOPED_PARAMETER_NS = 150_000, 12.0
"""What a loop takes at most on a processor: 25 to 40 microseconds for each tensor and 2 to 6 ns for each parameter were
measured, slow processors included. An update that takes longer has another reason, such as a busy host."""

LEAST_UPDATE_SAVED = 0.01
"""The least share of an update that a fused one is taken to save."""

LOOP_SAVED = (0.6, 0.36, 0.9)
"""Where that is not known: what goes of the update usually, at least and at most."""

RARER_STEPS = 50
"""Work between the steps is suggested to be done every so many steps."""

LEAST_OUTSIDE_SAVED = 0.25
"""Of the gain of less work between the steps, what a poor version saves."""

ALIKE_FRAC = 0.1
"""A median that is as near as this to the mean is not told beside it."""

PYTHON_SAVED, LEAST_PYTHON_SAVED = 0.9, 0.5
"""Of the work that goes where it is done on whole tensors, and where that saves only half; all of it is the most."""

OPERATORS_IN_MODULES_FRAC = 0.7
"""Part of the time in modules that is in operators; the rest of these are called by the user's code itself."""

LEAST_OWN_SAMPLES = 8
"""Samples of the user's own work in a phase, from which its share is believed."""

ONE_FUNCTION_FRAC = 0.7
"""One function is told, rather than several, if it is at least this share of the work."""

LEAST_ROWS_SAVED = 0.7
"""Of what surely goes: rows of different lengths are padded, and what is done for some rows only is done for all."""
