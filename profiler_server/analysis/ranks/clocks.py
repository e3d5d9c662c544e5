"""Clocks of several hosts: how far apart they are, from collectives that all ranks leave together; and ranks that cannot have
been in the collectives of the others: two jobs in one folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from collector.format.intervals import Floats, Ints, Mask
from profiler_server.diagnosis.limits.facts import MOST_FRAC
from profiler_server.diagnosis.limits.meetings import (
    ENOUGH_CALLS,
    FAR_RATIO,
    KEPT_PERCENT,
    LEAST_CALLS,
    MISSED_FRAC,
    TOGETHER_NS,
)
from profiler_server.diagnosis.limits.stragglers import LEAST_MEETINGS
from profiler_server.facts.job import Strangers


@dataclass(frozen=True)
class Alignment:
    """What to take off the times of each rank to have those of the first: `offset_ns` + `drift` · (time − `origin_ns`).

    `residual_ns` is the 95th percentile of how far a rank's ends lie from the median end after that.
    """

    origin_ns: Ints
    offset_ns: Ints
    drift: Floats
    residual_ns: float

    def align(self, row: int, times_ns: Ints) -> Ints:
        """Return times of a rank, by its row, on the clock of the first."""
        since = (times_ns - self.origin_ns[row]).astype(np.float64)
        aligned: Ints = times_ns - self.offset_ns[row] - np.round(self.drift[row] * since).astype(np.int64)
        return aligned


def align_clocks(ends_ns: Ints) -> Alignment | None:
    """Align the ends of common collectives, (ranks, calls) in any order; None for fewer than LEAST_CALLS of them."""
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
    """Return a percentile of how far each rank lies from the median of the ranks, over (ranks, calls)."""
    middle = np.median(times_ns, axis=0, keepdims=True)
    return float(np.percentile(np.abs(times_ns - middle), percent)) if times_ns.size else 0.0


def _fit_drift(times: Ints, left: Floats) -> float:
    """Fit a line through what the offset leaves, without the calls that lie far from it: those ended late by chance."""
    if len(times) < ENOUGH_CALLS or not np.ptp(times):
        return 0.0
    kept = np.ones(len(times), np.bool_)
    slope, level = 0.0, 0.0
    for _ in range(3):
        slope, level = np.polyfit(times[kept].astype(np.float64), left[kept], 1)
        distance = np.abs(left - slope * times - level)
        kept = distance <= np.percentile(distance, KEPT_PERCENT)
    return float(slope)


_EQUAL = ("allreduce", "allgather", "reducescatter")
"""Collectives to which every rank brings as much; an all-to-all may be uneven."""


@dataclass(frozen=True, eq=False)
class Shared:
    """Collectives that ranks seem to share, (ranks, calls) but for `name`; times are on the clock of each rank."""

    ranks: tuple[int, ...]
    name: tuple[str, ...]
    bytes: Ints
    begin_ns: Ints
    end_ns: Ints


def find_strangers(shared: Shared) -> Strangers | None:
    """Return the smaller part of the ranks where they are of two parts that did not meet, None where they did."""
    if shared.end_ns.shape[1] < LEAST_MEETINGS:
        return None
    if (unlike := _differ(shared)).any():
        return _part(shared.ranks, unlike, "bytes")
    if (unlike := _miss(shared)).any():
        return _part(shared.ranks, unlike, "times")
    return None


def _differ(shared: Shared) -> Mask:
    """Say which ranks send other amounts than the first one."""
    equal = np.array([any(known in name.lower().replace("_", "") for known in _EQUAL) for name in shared.name])
    sizes = shared.bytes[:, equal & (shared.bytes > 0).all(axis=0)]
    if sizes.shape[1] < LEAST_MEETINGS:
        return np.zeros(len(sizes), np.bool_)
    found: Mask = (sizes != sizes[:1]).mean(axis=1) > MOST_FRAC
    return found


def _miss(shared: Shared) -> Mask:
    """Say which ranks are not in the collectives while the first one is, or leave them at other moments than its part."""
    alignment = align_clocks(shared.end_ns)
    if alignment is None:
        return np.zeros(len(shared.end_ns), np.bool_)
    begin, end = (
        np.stack([alignment.align(row, times[row]) for row in range(len(times))])
        for times in (shared.begin_ns, shared.end_ns)
    )
    gap = np.maximum(begin - end[:1], begin[:1] - end)
    found: Mask = (gap > TOGETHER_NS).mean(axis=1) > MISSED_FRAC
    return found if found.any() else _leave_apart(end)


def _leave_apart(end_ns: Ints) -> Mask:
    """Say which ranks leave far from the first one where both parts leave together, each by itself."""
    apart = np.median(np.abs(end_ns - end_ns[:1]), axis=1)
    found: Mask = apart > TOGETHER_NS
    parts = [end_ns[chosen] for chosen in (found, ~found)]
    if min(len(part) for part in parts) < 2:
        return np.zeros(len(end_ns), np.bool_)
    within = max(float(np.percentile(np.abs(part - part[:1]), 95)) for part in parts)
    return found if apart[found].min() > FAR_RATIO * within else found & False


def _part(ranks: tuple[int, ...], unlike: Mask, by: Literal["bytes", "times"]) -> Strangers:
    parts = [tuple(rank for rank, is_it in zip(ranks, chosen, strict=True) if is_it) for chosen in (unlike, ~unlike)]
    fewer, more = sorted(parts, key=len)
    return Strangers(fewer, more, by)
