"""Which steps stand out, and what is told of how steady they are."""

from __future__ import annotations

EXCESS_FRAC = 0.25
"""A step is an outlier when it exceeds the median by this share of it,"""

DEVIATIONS = 6.0
"""and by so many robust deviations (1.4826 × MAD)."""

BULK_RATIO = 2.0
"""So is one that takes twice as long as nine steps in ten: where the usual steps spread widely, as behind a slow
loader, six deviations lie beyond anything that a reader of the chart would call usual."""

LEAST_USUAL = 10
"""Fewer steps have no usual length to stand out from."""

FAR_RATIO = 8.0
"""The longest step must be so many times as long as nineteen of twenty are before anything is cut."""

CUT_RATIO = 4.0
"""Then steps that are so many times as long as those are cut."""

LEAST_BLOCK = 5
"""Steps of a block: the median of so many is not moved by a single stall."""

LEAST_BLOCKS = 16
"""Fewer blocks cannot tell a change from chance, or were needed because every step depends on those before it."""

MOST_DEPENDENCE = 0.25
"""Correlation of a block with the next, the change itself taken out, up to which blocks count as independent."""

TREND_STEPS = 40
"""Fewer averaged steps have no first and last quarter to compare."""

CARRIED_STEPS = 10
"""Of fewer steps nobody asks which one carries a phase."""

CARRIED_FRAC = 0.5
"""A phase is carried by one step when more than this part of its time over all steps lies in that step."""

NOTED_FRAC = 0.005
"""Of a phase with a smaller share of the step nobody asks who carries it."""

WORTH_FRAC = 0.01
"""So much of the recorded time lies between epochs before it is said: each change of them takes some microseconds."""
