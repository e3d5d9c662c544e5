"""What the host was doing at a moment: the innermost operator that runs on a thread.

May import numpy and its neighbours in this room.
"""

from __future__ import annotations

import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.context import Reading


def find_operators(reading: Reading, times_ns: Ints, threads: Ints) -> Ints:
    """Return for each moment the innermost slice of host work around it on its thread, -1 for none.

    `threads` numbers threads as the log does; times are in the file's own base.
    """
    trace = reading.trace
    rows = np.flatnonzero(trace.is_host_work)
    found = np.full(len(times_ns), -1, np.int64)
    for thread in np.unique(threads).tolist():
        mine = rows[trace.columns.thread[rows] == thread]
        mine = mine[np.lexsort((-trace.columns.duration_ns[mine], trace.start_ns[mine]))]
        asked = np.flatnonzero(threads == thread)
        if len(mine):
            found[asked] = _find_around(reading, mine, times_ns[asked])
    return found


def _find_around(reading: Reading, rows: Ints, times_ns: Ints) -> Ints:
    """Climb from the last slice that began before each moment to the first owner that has not ended by then."""
    trace = reading.trace
    at = np.searchsorted(trace.start_ns[rows], times_ns, side="right") - 1
    found: Ints = np.where(at >= 0, rows[np.maximum(at, 0)], -1)
    while True:
        over = (found >= 0) & (trace.end_ns[found] < times_ns)
        if not over.any():
            return found
        found = np.where(over, trace.owner[found], found)
