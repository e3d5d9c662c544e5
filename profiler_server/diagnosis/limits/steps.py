"""Limits for outlier steps, and for the variation of the steps."""

from __future__ import annotations

EXCESS_FRAC = 0.25
"""An outlier exceeds the median step by at least this share of it, and by `DEVIATIONS`."""

DEVIATIONS = 6.0
"""An outlier exceeds the median step by this many robust deviations (1.4826 × MAD), and by `EXCESS_FRAC`."""

BULK_RATIO = 2.0
"""A step that takes this many times as long as nine steps in ten is an outlier, too. If the usual steps spread widely,
as behind a slow loader, six deviations would be too much."""

LEAST_USUAL = 10
"""Steps below which there is no usual length."""

FAR_RATIO = 8.0
"""Charts are cut only if the longest step takes this many times as long as nineteen of twenty steps."""

CUT_RATIO = 4.0
"""A chart is then cut above this many times the length of nineteen of twenty steps."""

LEAST_BLOCK = 5
"""Least steps of a block: a single stall does not move a median of this many."""

LEAST_BLOCKS = 16
"""Blocks below which a change cannot be separated from chance."""

MOST_DEPENDENCE = 0.25
"""Correlation of neighbouring blocks, without the change itself, up to which blocks count as independent."""

TREND_STEPS = 40
"""Averaged steps below which the first and the last quarter are not compared."""

CARRIED_STEPS = 10
"""Steps below which no single step is named as carrying a phase."""

CARRIED_FRAC = 0.5
"""One step carries a phase if it holds more than this share of the phase's time over all steps."""

NOTED_FRAC = 0.005
"""Share of the step below which a phase is not checked for a step that carries it."""

WORTH_FRAC = 0.01
"""Time between epochs is reported from this share of the recorded time: each change of epoch takes some microseconds.
"""

START_UP_NS = 3_000_000_000
"""A shorter time to the first step has no bar: importing torch alone takes about two seconds."""

START_UP_FRAC = 0.05
"""The time to the first step has a bar from this share of the recorded time, or from `LONG_START_UP_NS`."""

LONG_START_UP_NS = 60_000_000_000
"""A time to the first step with a bar however long the run is: whoever starts the script again waits for it again."""

LATE_SAMPLE_NS = 100_000_000
"""A first sample of the stacks that comes later leaves time before it whose cause was not seen. Five usual waits."""
