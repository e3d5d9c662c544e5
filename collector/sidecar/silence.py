"""From how long a silence of the training thread counts, as far as the user sets it."""

from __future__ import annotations

import math
import os

VARIABLE = "PROFILER_HANG_S"
LEAST_S = 30.0
"""Without the variable. At 0 or less nothing is said of jobs that stand still."""


def read_least_ns() -> int:
    try:
        least_s = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        least_s = LEAST_S
    return int((least_s if math.isfinite(least_s) else LEAST_S) * 1e9)
