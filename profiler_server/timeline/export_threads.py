"""Threads of an exported trace. Viewers need nested slices in a thread. Slices that overlap go to an extra thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collector.traces.writing import name_overlapping, spread_overlapping
from profiler_server.timeline.pyramid import Bins, Int32s
from profiler_server.timeline.sources import Track
from profiler_server.timeline.store import Timeline


@dataclass(frozen=True)
class Threads:
    """Threads of exported slices. `number` maps a slice number to the slice's thread, 0 if the slice is not written.

    `first` maps a track to its first thread, `beside` to the number of its extra threads.
    """

    number: Int32s
    first: dict[int, int]
    beside: dict[int, int]

    def names(self, track: Track) -> Iterator[tuple[int, str]]:
        first = self.first[track.id]
        for extra in range(self.beside[track.id] + 1):
            yield first + extra, name_overlapping(track.name, extra)


def spread_over_threads(timeline: Timeline, tracks: set[int], between: tuple[int, int] | None = None) -> Threads:
    """Return threads for the slices of some tracks: for all slices, or for those in a time range since the origin."""
    index = timeline.index
    # Zeros that are never written take no memory: a part of a long run needs memory only for its own slices.
    number = np.zeros(index.table_rows + index.slices, np.int32)
    first: dict[int, int] = {}
    beside: dict[int, int] = {}
    free = 1
    rows: dict[int, list[int]] = {}
    for lane, entry in enumerate(index.lanes):
        if entry.track in tracks:
            rows.setdefault(entry.track, []).append(lane)
    for track, numbers in rows.items():
        lanes = [_read(timeline, lane, between) for lane in numbers]
        first[track] = free
        groups = _spread(lanes)
        for row, group in zip(lanes, groups, strict=True):
            number[row.id] = free + group
        beside[track] = max(int(group.max(initial=0)) for group in groups)
        free += beside[track] + 1
    return Threads(number, first, beside)


def _read(timeline: Timeline, lane: int, between: tuple[int, int] | None) -> Bins:
    raw = timeline.raw
    return raw.cut(lane, *((0, raw.counts[lane]) if between is None else raw.find_window(lane, *between)))


def _spread(lanes: list[Bins]) -> list[Int32s]:
    """Return the number of each slice's extra thread, 0 for the first thread of the track."""
    nesting = _group_lanes(lanes)
    odd = np.concatenate(nesting) > 0
    if not odd.any():
        return nesting
    start, end = (np.concatenate([getattr(row, side) for row in lanes]).astype(np.int64) for side in ("start", "end"))
    order = np.lexsort((start - end, start))
    start, end = start[order], end[order]
    # A cluster begins where all earlier slices have ended. Only clusters with a slice that does not nest are walked.
    cluster = np.concatenate(([0], np.cumsum(start[1:] >= np.maximum.accumulate(end)[:-1])))
    walked = np.flatnonzero(np.isin(cluster, cluster[odd[order]]))
    beside = np.zeros(start.size, np.int32)
    beside[order[walked]] = spread_overlapping(start[walked].tolist(), end[walked].tolist())
    return np.split(beside, np.cumsum([row.start.size for row in lanes])[:-1])


def _group_lanes(lanes: list[Bins]) -> list[Int32s]:
    """Return the group of each slice: 0 if the slice nests in all lanes above it; else the number of its own lane."""
    groups: list[Int32s] = []
    for row, lane in enumerate(lanes):
        nests = np.ones(lane.start.size, bool)
        for above in reversed(lanes[:row]):
            inside, apart = _compare(lane, above)
            nests &= inside | apart
        groups.append(np.where(nests, 0, row).astype(np.int32))
    return groups


def _compare(lane: Bins, above: Bins) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    before = np.searchsorted(above.start, lane.start, "right") - 1
    safe = np.maximum(before, 0)
    inside = (before >= 0) & (above.end[safe] >= lane.end)
    follows = np.append(above.start, np.iinfo(np.int64).max)[before + 1]
    apart = ((before < 0) | (above.end[safe] <= lane.start)) & (follows >= lane.end)
    return inside, apart
