"""How sure a mean of steps is.

Steps that follow each other are not independent, so the interval comes from the means of up to 20 equal stretches of
them (batch means), not from single steps.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from collector.format.intervals import Floats

STRETCHES = 20


def measure_noise(values: Floats) -> float | None:
    """Return the half-width of the 95 % interval of a mean, from batch means; None for fewer than two values."""
    means = average_stretches(values)
    count = len(means)
    if count < 2:
        return None
    return quantile_of_t(count - 1) * float(means.std(ddof=1)) / math.sqrt(count)


def average_stretches(values: Floats) -> Floats:
    """Return the means of up to `STRETCHES` equal stretches of values in the order of time; none of no values."""
    count = min(STRETCHES, len(values))
    return np.array([part.mean() for part in np.array_split(values, count)] if count else [], dtype=np.float64)


def quantile_of_t(freedom: int, share: float = 0.975) -> float:
    """Return the quantile of Student's t, by default that of a two-sided 95 % interval.

    Exact for 1 and 2 degrees of freedom, else by the series of Cornish and Fisher: within 0.5 % from 3 on.
    """
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
