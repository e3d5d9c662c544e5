"""The comparison of runs, and the gate: what runs can be compared, and which change is named as the cause."""

from __future__ import annotations

CAUSE_FRAC = 0.25
"""A phase is named as the cause where it makes up so much of the change of the step, or of all phases."""

WHOLE_LOOP_FRAC = 0.05
"""The change of the whole loop is said where it is so much of the loop more, or less, than that of the step."""

MEDIAN_FRAC = 0.01
"""The median step is said where it changed by so much the other way than the mean."""

STEPS_RATIO = 2.0
"""So many times the steps is worth a caution: a short run is mostly warm-up."""

LEAST_LIKE = 5
"""Earlier runs of the program that are needed to know the scatter for a single pair."""

COMPARED_STEPS = 10
"""Of a run with fewer steps no median is compared."""

WITNESS_FRAC = 0.5
"""Processor time is said beside an undecided median where runs scatter at most so much in it of what they do in that."""

LEAST_RUNS = 3
"""Fewer runs on a side say nothing about the scatter from run to run."""

LEAST_PAIRS = 5
"""With fewer even pairs that all agree might do so by chance more often than is stated."""

MOST_CORRELATED = 0.8
"""Steps of a run that depend more on the one before give no interval,"""

LEAST_EFFECTIVE_STEPS = 20
"""and neither do fewer steps than this, counted as if they were independent."""

BUSY_FRAC = 0.25
"""A host is named from this share of its usable cores in use by other programs."""
