"""Limits of the rules on the course of a run: how it starts, and what changes during it."""

from __future__ import annotations

MIN_RESTARTS = 2
"""Restarts of the workers from which the rule says that they restart in every epoch."""

EVALUATION_FRAC = 0.12
"""Share of evaluation in the time of training and evaluation."""

JITTER_FRAC = 1.0
"""Steps vary much if the slowest tenth and the fastest tenth differ by this many usual steps."""

WARM_UP_FRAC, WARM_UP_NS = 0.10, 10e9
"""Excess of the first steps over usual ones: as a share of the recorded training, and in ns."""

DRIFT_FRAC, DRIFT_STEPS = 0.15, 60
"""Growth of the usual step from the first sixth of the run to the last, and the least steps to detect it."""

DRIFT_PARTS, DRIFT_RISES = 6, 4
"""Number of sections of the run that are compared, and how many must be longer than the one before."""

SHIFT_FRAC, SHIFT_STEPS = 0.10, 100
"""Growth of the usual step at one step of the run, and the least steps to separate it from chance."""

SHIFT_HELD_FRAC = 0.8
"""Share of the run before the shift, and of the run after it, that must lie on its own side of the shift."""

SHIFT_FILLS = 2.0
"""Multiple of the loader's prefetched batches that must be used up before the shift. Until then steps are shorter than
later ones."""

GROWN_FRAC, GROWN_BYTES = 0.10, 64 << 20
"""Growth of the process's memory after the first fifth of the run."""
