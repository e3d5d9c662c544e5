"""What the host was doing at a moment: the innermost operator that runs on a thread."""

from __future__ import annotations

import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.model import Trace
from collector.traces.kineto.sort import sort_rows


class Moments:
    """Looks up moments. `threads` are those that will be asked for, numbered as the log does."""

    def __init__(self, trace: Trace, threads: Ints) -> None:
        self._trace = trace
        self._rows: dict[int, Ints] = {}
        for thread in np.unique(threads).tolist():
            self._rows[thread] = self._sort(thread)
            trace.release()

    def _sort(self, thread: int) -> Ints:
        """Return the host work of a thread by start, the longer first."""
        trace, scratch = self._trace, self._trace.log.scratch
        mine = scratch.where(trace.is_host_work & (trace.columns.thread == thread))
        return sort_rows(trace.start_ns, mine, scratch, lambda rows: (-trace.columns.duration_ns[rows],))

    def find(self, times_ns: Ints, threads: Ints) -> Ints:
        """Return for each moment the innermost slice of host work around it on its thread, -1 for none.

        Times are in the file's own base.
        """
        found = np.full(len(times_ns), -1, np.int64)
        for thread in np.unique(threads).tolist():
            asked = np.flatnonzero(threads == thread)
            found[asked] = self._find_around(self._rows[thread], times_ns[asked])
        return found

    def _find_around(self, rows: Ints, times_ns: Ints) -> Ints:
        """Climb from the last slice that began before each moment to the first owner that has not ended by then."""
        trace = self._trace
        if not len(rows):
            return np.full(len(times_ns), -1, np.int64)
        # Only what began since the first moment, or is the last before it, can be the answer.
        first = _find_last(trace.start_ns, rows, int(times_ns.min()))
        rows = rows[max(first, 0) : _find_last(trace.start_ns, rows, int(times_ns.max())) + 1]
        at = np.searchsorted(trace.start_ns[rows], times_ns, side="right") - 1
        found: Ints = np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else np.full(len(times_ns), -1)
        while True:
            over = (found >= 0) & (trace.end_ns[found] < times_ns)
            if not over.any():
                return found
            found = np.where(over, trace.owner[found], found)


def _find_last(start_ns: Ints, rows: Ints, time_ns: int) -> int:
    """Return the place of the last row that began by then, -1 for none."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if start_ns[rows[middle]] <= time_ns:
            low = middle + 1
        else:
            high = middle
    return low - 1
