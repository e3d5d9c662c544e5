"""Sets of time: unions of half-open intervals in integer nanoseconds.

May import numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """A union of intervals, sorted, disjoint and not touching. Make it with `unite`."""

    starts: Ints
    ends: Ints

    @property
    def length_ns(self) -> int:
        return int((self.ends - self.starts).sum())

    def __or__(self, other: Intervals) -> Intervals:
        return unite(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: Intervals) -> Intervals:
        return self._combine(other, inside=True)

    def __sub__(self, other: Intervals) -> Intervals:
        return self._combine(other, inside=False)

    def _combine(self, other: Intervals, inside: bool) -> Intervals:
        """Cut time at every edge of both; keep the pieces of this set that lie inside, or outside, of the other."""
        # Sorted by hand: np.unique hashes, which takes many times as long on edges that lie almost in order.
        edges = np.sort(np.concatenate([self.starts, self.ends, other.starts, other.ends]), kind="stable")
        edges = edges[np.append(True, np.diff(edges) > 0)] if len(edges) else edges
        starts, ends = edges[:-1], edges[1:]
        keep = self._holds(starts) & (other._holds(starts) == inside)
        return unite(starts[keep], ends[keep])

    def _holds(self, times: Ints) -> npt.NDArray[np.bool_]:
        begun = np.searchsorted(self.starts, times, side="right")
        ended = np.searchsorted(self.ends, times, side="right")
        held: npt.NDArray[np.bool_] = begun > ended
        return held


def unite(starts: Ints, ends: Ints) -> Intervals:
    """Return the union of intervals in any order; empty ones and those that end before they start count for nothing."""
    solid = ends > starts
    starts, ends = starts[solid].astype(np.int64), ends[solid].astype(np.int64)
    if not len(starts):
        return Intervals(starts, ends)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    fresh = np.concatenate([[True], starts[1:] > reach[:-1]])
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(starts)) - 1
    return Intervals(starts[first], reach[last])


def integrate_capped(starts: Ints, ends: Ints, weights: Floats, cap: float) -> float:
    """Return the integral over time (in ns) of the sum of the weights of the intervals that are open, capped."""
    if not len(starts):
        return 0.0
    times = np.concatenate([starts, ends])
    changes = np.concatenate([weights, -weights])
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(changes[order])[:-1]
    return float((np.minimum(np.maximum(level, 0.0), cap) * np.diff(times)).sum())
