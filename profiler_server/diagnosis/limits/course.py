"""The rules on the course of a run: how it starts, and what changes in it."""

from __future__ import annotations

MIN_RESTARTS = 2
"""Restarts of the workers from which they are said to be restarted in every epoch."""

EVALUATION_FRAC = 0.12
"""Share of evaluation in the time of training and evaluation."""

JITTER_FRAC = 1.0
"""Steps vary much when the tenth that are slowest and the tenth that are fastest lie apart by so many usual steps."""

WARM_UP_FRAC, WARM_UP_NS = 0.10, 10e9
"""Share of the recorded training, and time, that the first steps took beyond the usual."""

DRIFT_FRAC, DRIFT_STEPS = 0.15, 60
"""Growth of the usual step from the first sixth of the run to the last, and the steps that it takes to tell."""

DRIFT_PARTS, DRIFT_RISES = 6, 4
"""Parts of the run that are compared, and how often one must be longer than the one before it."""

SHIFT_FRAC, SHIFT_STEPS = 0.10, 100
"""Growth of the usual step at one step of the run, and the steps that it takes to tell it from chance."""

SHIFT_HELD_FRAC = 0.8
"""Part of the run before that step, and of the run after it, that is as short, or as long, as the whole of it."""

SHIFT_FILLS = 2.0
"""How many times the batches that the loader holds must have been used before that step: until the batches made ahead
are used up, steps are shorter than they will be."""

GROWN_FRAC, GROWN_BYTES = 0.10, 64 << 20
"""Growth of the process's memory after the first fifth of the run."""
