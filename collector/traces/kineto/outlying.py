"""Tell times that cannot be true: those that lie far from all others of the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.traces.kineto.clock import Ints, Mask
from collector.traces.kineto.scratch import blocks

REACH_NS = 365 * 86_400 * 10**9
"""No trace is a year long: what lies further from its middle was taken with no clock or with a broken one."""

_SAMPLED_ROWS = 1 << 16


@dataclass
class Extent:
    """From the first time that was met to the last one."""

    first_ns: int | None = None
    last_ns: int = 0

    def add(self, start_ns: Ints, end_ns: Ints) -> None:
        """Widen it by some slices."""
        if len(start_ns):
            self.widen(int(start_ns.min()), int(end_ns.max()))

    def widen(self, first_ns: int, last_ns: int) -> None:
        """Widen it by one stretch of time."""
        self.last_ns = last_ns if self.first_ns is None else max(last_ns, self.last_ns)
        self.first_ns = first_ns if self.first_ns is None else min(first_ns, self.first_ns)

    def take(self, other: Extent) -> None:
        """Widen it by another one."""
        if other.first_ns is not None:
            self.widen(other.first_ns, other.last_ns)

    def can_be_true(self) -> bool:
        """Say whether a trace may be that long."""
        return self.first_ns is None or self.last_ns - self.first_ns <= REACH_NS


@dataclass(frozen=True)
class Reach:
    """The times that are taken for true."""

    low_ns: int
    high_ns: int

    def holds(self, start_ns: Ints, duration_ns: Ints | None = None) -> Mask:
        """Return which moments, or which slices as a whole, lie within."""
        held = np.empty(len(start_ns), bool)
        for rows in blocks(len(held)):
            starts = start_ns[rows]
            ends = starts if duration_ns is None else starts + duration_ns[rows]
            held[rows] = (starts >= self.low_ns) & (ends <= self.high_ns)
        return held


def find_reach(start_ns: Ints) -> Reach:
    """Return a year to both sides of the middle of the starts, of which there is one at least."""
    # The middle is where most events are even if a sample tells it, and whether the trace counts from 1970 or from 0.
    middle_ns = int(np.median(start_ns[:: max(len(start_ns) // _SAMPLED_ROWS, 1)]))
    return Reach(middle_ns - REACH_NS, middle_ns + REACH_NS)
