"""Delays that come now and then, such as the checkpoints of one rank: too rare to show in the mean, too large for chance."""

from __future__ import annotations

import numpy as np

from collector.format.intervals import Floats, Mask

LEAST_LONG = 5
"""Fewer long waits do not tell whose they are."""
LONG_DEVIATIONS = 10.0
"""A wait is long if it lies so many robust deviations over the usual one."""
MOST_OF_DELAY_FRAC = 0.5
LAST_OF_LONG_FRAC = 0.8
SURE_ERRORS = 3.0


def weigh_longest(late_ns: Floats, row: int) -> tuple[int, int] | None:
    """Return for how many of the long waits a rank came last, and how many those are; None where it may be chance.

    `late_ns` is (ranks, steps). A wait is as long as the last rank comes after the second last. Long waits must make up
    most of what the rank holds the others up.
    """
    margin, is_long = mark_long(late_ns)
    is_last = np.argmax(late_ns, axis=0) == row
    count, was_last = int(is_long.sum()), int((is_long & is_last).sum())
    chance = 1.0 / len(late_ns)
    error = float(np.sqrt(count * chance * (1.0 - chance)))
    is_sure = count >= LEAST_LONG and was_last - count * chance > SURE_ERRORS * error
    is_most = margin[is_long & is_last].sum() >= MOST_OF_DELAY_FRAC * margin[is_last].sum()
    return (was_last, count) if is_sure and is_most and was_last >= LAST_OF_LONG_FRAC * count else None


def mark_long(late_ns: Floats) -> tuple[Floats, Mask]:
    """Return how long the others wait for the last rank in each step, and in which of them that is long."""
    ordered = np.sort(late_ns, axis=0)
    margin: Floats = ordered[-1] - ordered[-2]
    usual = float(np.median(margin))
    is_long: Mask = margin > usual + LONG_DEVIATIONS * 1.4826 * float(np.median(np.abs(margin - usual)))
    return margin, is_long
