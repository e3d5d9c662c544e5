"""By what chance two means differ as they do, and what remains of it when many are tested at once.

A part of the step is tested by Welch's t. Of many tests at 5 % some succeed by chance: of eight phases of a program
that is compared with itself, one in three comparisons has one. Holm's correction (Holm 1979, Scandinavian Journal of
Statistics 6) keeps at 5 % the chance that any does, however the parts depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.intervals import Floats

ALPHA = 0.05
"""Chance that a program is called slower than itself."""


@dataclass(frozen=True)
class MeanDifference:
    """The mean of the second less that of the first; `noise` is the half-width of its 95 % interval and `p` its
    two-sided chance, both None where one of the two has fewer than two values."""

    change: float
    noise: float | None
    p: float | None


def compare_means(a: Floats, b: Floats, change: float | None = None) -> MeanDifference:
    """Compare the means of two samples of independent values, whose spreads may differ (Welch's t).

    `change` stands for the difference of their means where that is known better, as of stretches of unequal lengths.
    """
    from scipy.special import stdtr, stdtrit  # slow to import, and few pages need it

    if change is None:
        change = float(b.mean() - a.mean())
    if min(len(a), len(b)) < 2:
        return MeanDifference(change, None, None)
    error, freedom = measure_error(a, b)
    if error == 0.0:
        return MeanDifference(change, 0.0, 1.0 if change == 0.0 else 0.0)
    p = float(2.0 * stdtr(freedom, -abs(change) / error))
    return MeanDifference(change, float(stdtrit(freedom, 1.0 - ALPHA / 2)) * error, p)


def measure_error(a: Floats, b: Floats) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom (Welch, Satterthwaite)."""
    parts = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = math.sqrt(sum(parts))
    if error == 0.0:
        return 0.0, 1.0
    return error, sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))


def correct_chances(chances: Sequence[float]) -> list[float]:
    """Return for each p that of Holm's correction, which is to be compared with `ALPHA` instead of it."""
    corrected, highest = [1.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=lambda place: chances[place])):
        highest = max(highest, min((len(chances) - rank) * chances[place], 1.0))
        corrected[place] = highest
    return corrected
