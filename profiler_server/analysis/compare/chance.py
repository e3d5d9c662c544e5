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
from collector.format.noise import average_stretches, count_independent

ALPHA = 0.05
"""Chance that a program is called slower than itself."""


@dataclass(frozen=True)
class MeanDifference:
    """The mean of the second less that of the first; `noise` is the half-width of its 95 % interval and `p` its
    two-sided chance, both None where one of the two has fewer than two values."""

    change: float
    noise: float | None
    p: float | None


def compare_stretches(a: Floats, b: Floats) -> MeanDifference:
    """Compare the means of values in the order of time, by those of stretches of them, which may resemble each other."""
    of_a, of_b = average_stretches(a), average_stretches(b)
    change = (float(b.mean()) if len(b) else 0.0) - (float(a.mean()) if len(a) else 0.0)
    if min(len(of_a), len(of_b)) < 2:
        return MeanDifference(change, None, None)
    return _judge(change, *_measure_error(of_a, of_b, (count_independent(of_a), count_independent(of_b))))


def compare_means(a: Floats, b: Floats) -> MeanDifference:
    """Compare the means of two samples of independent values, whose spreads may differ (Welch's t)."""
    change = float(b.mean() - a.mean())
    if min(len(a), len(b)) < 2:
        return MeanDifference(change, None, None)
    return _judge(change, *measure_error(a, b))


def _judge(change: float, error: float, freedom: float) -> MeanDifference:
    from scipy.special import stdtr, stdtrit  # slow to import, and few pages need it

    if error == 0.0:
        return MeanDifference(change, 0.0, 1.0 if change == 0.0 else 0.0)
    p = float(2.0 * stdtr(freedom, -abs(change) / error))
    return MeanDifference(change, float(stdtrit(freedom, 1.0 - ALPHA / 2)) * error, p)


def measure_error(a: Floats, b: Floats) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom (Welch, Satterthwaite)."""
    return _measure_error(a, b, (len(a), len(b)))


def _measure_error(a: Floats, b: Floats, counts: tuple[float, float]) -> tuple[float, float]:
    parts = a.var(ddof=1) / counts[0], b.var(ddof=1) / counts[1]
    error = math.sqrt(sum(parts))
    if error == 0.0:
        return 0.0, 1.0
    return error, sum(parts) ** 2 / (parts[0] ** 2 / (counts[0] - 1) + parts[1] ** 2 / (counts[1] - 1))


def correct_chances(chances: Sequence[float]) -> list[float]:
    """Return for each p that of Holm's correction, which is to be compared with `ALPHA` instead of it."""
    corrected, highest = [1.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=lambda place: chances[place])):
        highest = max(highest, min((len(chances) - rank) * chances[place], 1.0))
        corrected[place] = highest
    return corrected
