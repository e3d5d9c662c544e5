"""What each thread does at every moment: stretches of host time, each owned by the innermost slice around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from profiler_server.analysis.device.slices import count_levels
from profiler_server.analysis.replay.window import SET, Window


@dataclass(frozen=True)
class Segments:
    """Stretches of one thread in order of time; `owner` is the row of the innermost slice, -1 for none."""

    start_ns: Ints
    end_ns: Ints
    owner: Ints


def split_thread(window: Window, track: int, end_ns: int) -> Segments:
    """Cut the time of a thread at the edges of its slices, from the start of the window to `end_ns`.

    What begins at a cut owns the time from there on; after an end the slice around it does.
    """
    rows = np.flatnonzero((window.track == track) & (window.kind > SET) & (window.end_ns > window.start_ns))
    starts, ends = window.start_ns[rows], np.minimum(window.end_ns[rows], end_ns)
    depth = count_levels(window.parent, rows)
    times = np.concatenate([[window.first_ns], ends, starts])
    owner = np.concatenate([[-1], window.parent[rows], rows])
    is_start = np.repeat([0, 0, 1], [1, len(rows), len(rows)])
    # At one moment the inner slices end first, and the outer ones begin first.
    order = np.lexsort((np.concatenate([[0], -depth, depth]), is_start, times))
    times, owner = times[order], owner[order]
    until = np.append(times[1:], end_ns)
    kept = until > times
    return Segments(times[kept], until[kept], owner[kept])
