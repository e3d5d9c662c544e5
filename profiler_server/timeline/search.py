"""Search for slices by name, with an index by name and start; and the names with the most time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints
from profiler_server.timeline.store import Place, Timeline

Direction = Literal["next", "previous"]


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: `count` slices match, and these slices have `names` different names.

    `hit` is the requested match, None without any. `number` is the position of `hit` in time order, from 1, or 0
    without a match."""

    count: int
    names: int
    hit: Place | None
    number: int


def search(timeline: Timeline, text: str, after: tuple[int, int], direction: Direction) -> SearchResult:
    """Return the next or previous match after a position in time, and wrap around at the end.

    `after` is (start relative to the origin, position in lane order) of the current slice; (-1, -1) for the first
    match.
    """
    names = timeline.names.find(text) if text else np.zeros(0, np.intp)
    names = names[timeline.names.count[names] > 0]
    counts = timeline.names.count[names]
    total = int(counts.sum())
    if not total:
        return SearchResult(0, 0, None, 0)
    first, last = timeline.name_offsets[names], timeline.name_offsets[names + 1]
    # The position in each name's slices at which the search continues. The pair (start, place) sorts the slices of all
    # names.
    passed = _bisect(timeline, first, last, after)
    before = int((passed - first).sum())
    if direction == "next":
        number = before + 1 if before < total else 1
        position = _pick(timeline, passed[passed < last] if before < total else first[first < last], 0)
    else:
        at_after = _bisect(timeline, first, last, (after[0], after[1] - 1))
        earlier = int((at_after - first).sum())
        number = earlier if earlier else total
        ends = at_after if earlier else last
        position = _pick(timeline, ends[first < ends] - 1, -1)
    return SearchResult(total, len(names), timeline.place(position), number)


def _bisect(timeline: Timeline, first: Ints, last: Ints, after: tuple[int, int]) -> Ints:
    """Return for each range of the index its first entry after the position `after` (start, position in lane order)."""
    low, high = first.copy(), last.copy()
    while True:
        open_ = np.flatnonzero(low < high)
        if not open_.size:
            return low
        middle = (low[open_] + high[open_]) >> 1
        place = timeline.read_order(middle)
        start = _read_starts(timeline, place)
        behind = (start < after[0]) | ((start == after[0]) & (place <= after[1]))
        low[open_[behind]] = middle[behind] + 1
        high[open_[~behind]] = middle[~behind]


def _pick(timeline: Timeline, rows: Ints, which: int) -> int:
    places = timeline.read_order(rows)
    return int(places[np.lexsort((places, _read_starts(timeline, places)))[which]])


def _read_starts(timeline: Timeline, places: Ints) -> npt.NDArray[np.int64]:
    lanes = np.searchsorted(timeline.lane_offsets, places, "right") - 1
    starts = np.empty(places.size, np.int64)
    for lane in np.unique(lanes):
        rows = lanes == lane
        starts[rows] = timeline.raw.pick(int(lane), 0, places[rows] - timeline.lane_offsets[lane])
    return starts


@dataclass(frozen=True)
class NameTotal:
    """The slices of one name: their number, total time, mean time and longest time."""

    name: str
    category: str
    count: int
    total_ns: int
    mean_ns: float
    longest_ns: int


def list_longest(timeline: Timeline, limit: int = 20) -> tuple[NameTotal, ...]:
    """Return the names with the most time in the whole timeline, for the table beside the drawing."""
    ordered = np.argsort(-timeline.names.total_ns, kind="stable")[:limit].tolist()
    return tuple(NameTotal(*timeline.names.describe(name)) for name in ordered)
