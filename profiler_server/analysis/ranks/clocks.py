"""Clock offsets of several hosts, so that times of ranks compare; from collectives that all ranks leave together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.diagnosis.limits.meetings import (
    ENOUGH_CALLS,
    KEPT_PERCENT,
    LEAST_CALLS,
)


@dataclass(frozen=True)
class Alignment:
    """The correction of each rank's times to the clock of the first rank.

    A corrected time is time − (`offset_ns` + `drift` · (time − `origin_ns`)). `residual_ns` is the 95th percentile of
    the distances that remain: from each rank's corrected end of a call to the median end over the ranks.
    """

    origin_ns: Ints
    offset_ns: Ints
    drift: Floats
    residual_ns: float

    def align(self, row: int, times_ns: Ints) -> Ints:
        """Return the times of the rank in row `row` on the clock of the first rank."""
        since = (times_ns - self.origin_ns[row]).astype(np.float64)
        aligned: Ints = times_ns - self.offset_ns[row] - np.round(self.drift[row] * since).astype(np.int64)
        return aligned


def align_clocks(ends_ns: Ints) -> Alignment | None:
    """Return the alignment of clocks from the ends of common collectives (ranks, calls), whose order is arbitrary.

    None for a single rank, or for fewer than LEAST_CALLS collectives.
    """
    ranks, calls = ends_ns.shape
    if calls < LEAST_CALLS or ranks < 2:
        return None
    # Differences of whole numbers: clocks that are hours apart would lose digits as floats.
    gaps = ends_ns - ends_ns[:1]
    offset = np.median(gaps, axis=1).astype(np.int64)
    origin = np.median(ends_ns, axis=1).astype(np.int64)
    left = (gaps - offset[:, None]).astype(np.float64)
    drift = np.array([_fit_drift(ends_ns[row] - origin[row], left[row]) for row in range(ranks)])
    found = Alignment(origin, offset, drift, 0.0)
    ends = np.stack([found.align(row, ends_ns[row]) for row in range(ranks)])
    return Alignment(origin, offset, drift, measure_spread(ends, 95))


def measure_spread(times_ns: Ints | Floats, percent: float) -> float:
    """Return the percentile `percent` (0 to 100) of |time - median time over the ranks|. Times are (ranks, calls)."""
    middle = np.median(times_ns, axis=0, keepdims=True)
    return float(np.percentile(np.abs(times_ns - middle), percent)) if times_ns.size else 0.0


def _fit_drift(times: Ints, left: Floats) -> float:
    """Return the slope of a line through `left` over the times; 0 for few calls. `left` is what an offset leaves, in
    ns.

    Calls that ended late by chance are left out as outliers.
    """
    if len(times) < ENOUGH_CALLS or not np.ptp(times):
        return 0.0
    kept = np.ones(len(times), np.bool_)
    slope, level = 0.0, 0.0
    for _ in range(3):
        slope, level = np.polyfit(times[kept].astype(np.float64), left[kept], 1)
        distance = np.abs(left - slope * times - level)
        kept = distance <= np.percentile(distance, KEPT_PERCENT)
    return float(slope)
