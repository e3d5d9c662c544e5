"""Compute how uncertain a mean over steps is.

The times of successive steps are not independent, so the interval is computed from the means of up to 20 equal
stretches of steps (batch means), not from single steps. If the means of successive stretches still correlate, fewer are
counted.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from collector.format.intervals import Floats

STRETCHES = 20
LEAST_JUDGED = 10
"""The least number of stretches for which their correlation is checked: with fewer, chance decides."""
MOST_ALIKE = 0.9
"""The upper limit of the autocorrelation used: beyond it, almost nothing is known."""


def measure_noise(values: Floats) -> float | None:
    """Return the half-width of the 95 % confidence interval of the mean of `values`, which are in time order; None for
    0 or 1 values."""
    means = average_stretches(values)
    count = len(means)
    if count < 2:
        return None
    independent = count_independent(means)
    return quantile_of_t(max(int(independent) - 1, 1)) * float(means.std(ddof=1)) / math.sqrt(independent)


def count_independent(means: Floats) -> float:
    """Return the effective number of independent values among the means of stretches, at least two.

    With lag-1 autocorrelation r, n values count as n (1 - r) / (1 + r). The estimate of r is too low by about (1 + 3 r)
    / n, so this is added to it (Kendall 1954, Note on bias in the estimation of autocorrelation, Biometrika 41).
    """
    count, scatter = len(means), means - means.mean()
    square = float(scatter @ scatter)
    if count < LEAST_JUDGED or square == 0.0:
        return float(count)
    estimate = float(scatter[1:] @ scatter[:-1]) / square
    alike = min(max(estimate + (1.0 + 3.0 * estimate) / count, 0.0), MOST_ALIKE)
    return max(count * (1.0 - alike) / (1.0 + alike), 2.0)


def average_stretches(values: Floats) -> Floats:
    """Return the means of up to `STRETCHES` stretches of equally many values, in time order; empty for no values."""
    count = min(STRETCHES, len(values))
    return np.array([part.mean() for part in np.array_split(values, count)] if count else [], dtype=np.float64)


def quantile_of_t(freedom: int, share: float = 0.975) -> float:
    """Return a quantile of Student's t: exact for 1 and 2 degrees, else Cornish-Fisher, within 0.5 % from 3 on."""
    if freedom == 1:
        return math.tan(math.pi * (share - 0.5))
    if freedom == 2:
        return (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    corrections: list[float] = [term / freedom**power for power, term in enumerate(terms, 1)]
    return z + math.fsum(corrections)
