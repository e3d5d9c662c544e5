"""Sets of time intervals as two sorted int64 arrays, starts and ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Disjoint intervals in time order: `start[i] < end[i] <= start[i + 1]`."""

    start: Int64s
    end: Int64s

    @property
    def total_ns(self) -> int:
        return int((self.end - self.start).sum())


def merge_intervals(start: Int64s, end: Int64s) -> Intervals:
    """Return the union of any intervals; empty ones vanish and touching ones become one."""
    kept = end > start
    start, end = start[kept], end[kept]
    if not start.size:
        return Intervals(start, end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start[opens], reach[closes])


def intersect_intervals(a: Intervals, b: Intervals) -> Intervals:
    """Return the time that is in both."""
    return _sweep(a, b, level=2)


def subtract_intervals(a: Intervals, b: Intervals) -> Intervals:
    """Return the time that is in `a` and not in `b`."""
    if not a.start.size or not b.start.size:
        return a
    low, high = min(a.start[0], b.start[0]) - 1, max(a.end[-1], b.end[-1]) + 1
    outside = Intervals(np.concatenate(([low], b.end)), np.concatenate((b.start, [high])))
    return _sweep(a, outside, level=2)


def _sweep(a: Intervals, b: Intervals, level: int) -> Intervals:
    times = np.concatenate((a.start, b.start, a.end, b.end))
    change = np.repeat(np.array([1, -1], np.int64), (a.start.size + b.start.size, a.end.size + b.end.size))
    order = np.lexsort((change, times))
    times, depth = times[order], np.cumsum(change[order])
    inside = np.flatnonzero(depth[:-1] >= level) if times.size else np.zeros(0, np.intp)
    return merge_intervals(times[inside], times[inside + 1])
