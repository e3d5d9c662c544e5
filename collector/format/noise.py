"""How sure a mean of steps is.

Steps that follow each other are not independent, so the interval comes from the means of up to 20 equal stretches of
them (batch means), not from single steps.
"""

from __future__ import annotations

import numpy as np

from collector.format.intervals import Floats

STRETCHES = 20
# Student's t at 97.5 % for 1, 2, 3 … degrees of freedom; beyond the list it changes by less than 0.1.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)


def measure_noise(values: Floats) -> float | None:
    """Return the half-width of the 95 % interval of a mean, from batch means; None for fewer than two values."""
    count = min(STRETCHES, len(values))
    if count < 2:
        return None
    means = np.array([part.mean() for part in np.array_split(values, count)])
    student = _STUDENT[min(count - 1, len(_STUDENT)) - 1]
    return float(student * means.std(ddof=1) / np.sqrt(count))
