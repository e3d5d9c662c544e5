"""Compute with sets of time, such as when a device is busy: unions of half-open intervals, in integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Intervals:
    """A set of time: its intervals, sorted, disjoint and never touching. Make it with `unite`. `|`, `&` and `-` are
    union, intersection and difference."""

    starts: Ints
    ends: Ints

    @property
    def length_ns(self) -> int:
        return int((self.ends - self.starts).sum())

    def measure_before(self, times: Ints) -> Ints:
        """Return for each time how much of the set lies before it, in ns."""
        begun = np.searchsorted(self.starts, times, side="right")
        done = np.append(0, np.cumsum(self.ends - self.starts))[begun]
        found: Ints = done - np.maximum(np.append(self.ends, _EARLIEST)[begun - 1] - times, 0)
        return found

    def contains(self, times: Ints) -> Mask:
        """Return a mask of the times that lie in the set."""
        last = np.searchsorted(self.starts, times, side="right") - 1
        found: Mask = times < np.append(self.ends, _EARLIEST)[last]
        return found

    def __or__(self, other: Intervals) -> Intervals:
        return unite(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: Intervals) -> Intervals:
        return _intersect(self, other.starts, other.ends)

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(other.starts):
            return self
        return _intersect(self, np.append(_EARLIEST, other.ends), np.append(other.starts, _LATEST))


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
_EARLIEST, _LATEST = np.int64(-(1 << 62)), np.int64(1 << 62)


def _intersect(one: Intervals, starts: Ints, ends: Ints) -> Intervals:
    """Return the intersection of two sets. `starts` and `ends` are sorted, disjoint intervals that do not touch.

    Each interval overlaps a consecutive range of intervals of the other set. The results are sorted and do not touch,
    because neither set has intervals that touch.
    """
    first = np.searchsorted(ends, one.starts, side="right")
    count = np.maximum(np.searchsorted(starts, one.ends, side="left") - first, 0)
    row = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
    return Intervals(np.maximum(one.starts[row], starts[place]), np.minimum(one.ends[row], ends[place]))


def unite(starts: Ints, ends: Ints) -> Intervals:
    """Return the union of intervals in any order; intervals without a positive length are ignored."""
    solid = ends > starts
    starts, ends = starts[solid].astype(np.int64, copy=False), ends[solid].astype(np.int64, copy=False)
    if not len(starts):
        return Intervals(starts, ends)
    if (starts[1:] < starts[:-1]).any():  # slices come sorted: millions need no second sort
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    fresh = np.concatenate([[True], starts[1:] > reach[:-1]])
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(starts)) - 1
    return Intervals(starts[first], reach[last])


def integrate_capped(starts: Ints, ends: Ints, weights: Floats, cap: float) -> float:
    """Return the integral over time (ns) of a sum of weights, capped at `cap`: at each moment, the weights of the
    intervals that cover the moment are added.
    """
    if not len(starts):
        return 0.0
    times = np.concatenate([starts, ends])
    changes = np.concatenate([weights, -weights])
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(changes[order])[:-1]
    return float((np.minimum(np.maximum(level, 0.0), cap) * np.diff(times)).sum())
