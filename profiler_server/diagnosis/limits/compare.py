"""Limits of `compare` and `check`: which runs can be compared, and which change is named as the cause."""

from __future__ import annotations

CAUSE_FRAC = 0.25
"""A phase is named as the cause if its change is at least this share of the step's change, or of all phases' changes.
"""

WHOLE_LOOP_FRAC = 0.05
"""The change of the whole loop is reported if it differs from the step's change by at least this much."""

MEDIAN_FRAC = 0.01
"""The median step is reported if it changed by at least this much in the opposite direction of the mean."""

STEPS_RATIO = 2.0
"""Runs whose step counts differ by this factor get a caution, because a short run is mostly warm-up."""

LEAST_LIKE = 5
"""Earlier runs of the program that must exist before their scatter is used to judge a single pair."""

COMPARED_STEPS = 10
"""The median of a run with fewer steps is not compared."""

LEAST_RUNS = 3
"""Runs per side below which the scatter from run to run is unknown."""

LEAST_PAIRS = 5
"""With fewer pairs, the agreement of all pairs could be chance more often than stated."""

MOST_CORRELATED = 0.8
"""A run whose steps correlate more than this with the step before gets no interval."""

LEAST_EFFECTIVE_STEPS = 20
"""A run gets no interval if its steps, which depend on each other, are worth fewer independent steps than this."""

BUSY_FRAC = 0.25
"""A host is named if other programs use at least this share of its usable cores."""
