"""Sum up an area of the timeline by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_server.timeline.store import Timeline

MOST_ROWS = 200
MOST_SLICES = 20_000_000
_CHUNK = 1 << 20


@dataclass(frozen=True)
class AreaRow:
    """One name in the area. `total_ns` is the time inside the area; `mean_ns` and `longest_ns` are of whole slices."""

    name: str
    category: str
    count: int
    total_ns: int
    mean_ns: float
    longest_ns: int


@dataclass(frozen=True)
class AreaSummary:
    """The names of an area by time, at most `MOST_ROWS`; `left_out` says what is not among them, empty for nothing."""

    slices: int
    total_ns: int
    names: int
    rows: tuple[AreaRow, ...]
    left_out: str = ""


def summarize_area(timeline: Timeline, begin: int, end: int, lanes: Sequence[int]) -> AreaSummary:
    """Sum up what runs in [begin, end), relative to the origin, on some lanes."""
    size = len(timeline.names.name)
    count, inside, whole, longest = (np.zeros(size, np.int64) for _ in range(4))
    read, left_out = 0, ""
    for lane in lanes:
        first, last = timeline.raw.find_window(lane, begin, end)
        if read + last - first > MOST_SLICES:
            left_out = f"The area holds more than {MOST_SLICES:,} slices; the lanes below are not counted."
            break
        read += last - first
        for at in range(first, last, _CHUNK):
            part = timeline.raw.cut(lane, at, min(at + _CHUNK, last))
            length = part.end - part.start
            clipped = np.minimum(part.end, end) - np.maximum(part.start, begin)
            count += np.bincount(part.name, minlength=size)
            np.add.at(inside, part.name, clipped)
            np.add.at(whole, part.name, length)
            np.maximum.at(longest, part.name, length)
    present = np.flatnonzero(count)
    ordered = present[np.argsort(-inside[present], kind="stable")]
    if ordered.size > MOST_ROWS and not left_out:
        left_out = f"{ordered.size - MOST_ROWS:,} more names with less time are not listed."
    names = timeline.names
    rows = tuple(
        AreaRow(
            names.name[i], names.category[i], int(count[i]), int(inside[i]), float(whole[i] / count[i]), int(longest[i])
        )
        for i in ordered[:MOST_ROWS].tolist()
    )
    return AreaSummary(int(count.sum()), int(inside.sum()), int(present.size), rows, left_out)


def list_longest(timeline: Timeline, limit: int = 20) -> tuple[AreaRow, ...]:
    """Return the names with the most time in the whole timeline, for the table that stands beside the drawing."""
    names = timeline.names
    ordered = np.argsort(-names.total_ns, kind="stable")[:limit].tolist()
    return tuple(
        AreaRow(
            names.name[i],
            names.category[i],
            int(names.count[i]),
            int(names.total_ns[i]),
            float(names.total_ns[i] / max(names.count[i], 1)),
            int(names.longest_ns[i]),
        )
        for i in ordered
    )
