"""Limits of the rules on the course of a run: its start, and its changes over time."""

from __future__ import annotations

MIN_RESTARTS = 2
"""Restarts of the workers from which the rule says that they restart in every epoch."""

NEXT_STEPS = 4
"""The first step after a restart is compared with the median of this many steps that follow it."""

LONGER_SAVED_FRAC = 2 / 3
"""Share of the longer computing after a restart that goes with the restart. Workers that stay make all their batches at
once at the start of an epoch, which keeps the rest."""

EVALUATION_FRAC = 0.12
"""Evaluation is reported from this share of the time of training and evaluation."""

JITTER_FRAC = 1.0
"""Steps vary much if the slowest tenth and the fastest tenth differ by this many usual steps."""

WARM_UP_FRAC, WARM_UP_NS = 0.10, 10e9
"""Warm-up, or a slow start of the loader, is reported if it takes this share of the recorded training and this many ns
beyond usual steps."""

DRIFT_FRAC, DRIFT_STEPS = 0.15, 60
"""A drift is reported if the usual step grew by this share from the first sixth of the run to the last. The run needs
this many steps."""

MUCH_DRIFT_FRAC = 0.5
"""A drift of this share is advised to be mended if a line explains it. A smaller one is a remark: a host that gets hot or
busy makes steps longer, too."""

DRIFT_PARTS, DRIFT_RISES = 6, 4
"""Number of sections of the run that are compared for a drift, and how many must be longer than the section before."""

SHIFT_FRAC, SHIFT_STEPS = 0.10, 100
"""A shift is reported if the usual step grew by this share at one step of the run. The run needs this many steps."""

SHIFT_HELD_FRAC = 0.8
"""Share of the run before the shift, and of the run after it, that must lie on its own side of the shift."""

SHIFT_FILLS = 2.0
"""Multiple of the loader's prefetched batches that must be used up before the shift. Until then steps are shorter than
later ones."""

GROWN_FRAC, GROWN_BYTES = 0.10, 64 << 20
"""Memory growth of the process after the first fifth of the run is reported from this share and this many bytes."""
