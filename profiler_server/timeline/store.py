"""An open timeline: the files of its cache, and the queries that tiles, search and details need."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints
from collector.format.run import RankRun
from profiler_server.timeline.build import (
    COUNTERS_FILE,
    INDEX_FILE,
    NAMES_FILE,
    ORDER_FILE,
    RAW_FILE,
    TILE_BITS,
    Index,
    level_file,
)
from profiler_server.timeline.lane_file import BINS_KINDS, POINT_KINDS, RAW_KINDS, ColumnFile, CounterFile, LaneFile
from profiler_server.timeline.pyramid import Bins, Names, join_bins, merge_bins, read_names


class Cut(NamedTuple):
    """Bins of a time range, lane after lane. `lane` is the lane of each bin."""

    lane: npt.NDArray[np.uint32]
    bins: Bins


class Place(NamedTuple):
    """A slice in a timeline: its position in lane order, its lane, and its times relative to the origin."""

    position: int
    lane: int
    start: int
    end: int
    name: int
    sid: int


class Timeline:
    """One rank's timeline. Data is read on request, so opening takes a few milliseconds for a timeline of any size."""

    def __init__(self, folder: Path, rank: RankRun, stamp: str) -> None:
        self.folder = folder
        self.rank = rank
        self.stamp = stamp
        self.index = msgspec.json.decode((folder / INDEX_FILE).read_bytes(), type=Index)
        self.raw = LaneFile(folder / RAW_FILE, RAW_KINDS)
        self._levels = {level: LaneFile(folder / level_file(level), BINS_KINDS) for level in self.index.levels}
        self._order = ColumnFile(folder / ORDER_FILE, (np.uint32,))
        self.counters = CounterFile(folder / COUNTERS_FILE, POINT_KINDS)
        counts = [lane.count for lane in self.index.lanes]
        self.lane_offsets: Ints = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    @property
    def span_ns(self) -> int:
        return self.index.end_ns - self.index.origin_ns

    @cached_property
    def names(self) -> Names:
        return read_names(self.folder / NAMES_FILE)

    @cached_property
    def name_offsets(self) -> Ints:
        return np.concatenate(([0], np.cumsum(self.names.count))).astype(np.int64)

    def read_order(self, rows: Ints) -> Ints:
        """Return the positions in lane order of the slices in `rows` of the index by name and start."""
        return self._order.pick(0, 0, rows).astype(np.int64)

    def cut_tile(self, level: int, number: int) -> Cut:
        """Return the slices that start in tile `number` of a level, and in each lane the slice that runs at the tile's
        left edge.

        At the raw level, every slice is single. At higher levels, consecutive slices shorter than a bin are merged.
        """
        begin = number << (level + TILE_BITS)
        return self.cut(level, begin, begin + (1 << (level + TILE_BITS)))

    def cut(self, level: int, begin: int, end: int) -> Cut:
        """Return the same as `cut_tile` for any time range in ns, relative to the origin."""
        source = self._find_source(level)
        source.read_ahead(begin, end)
        pieces, lanes = [], []
        for lane in range(len(self.index.lanes)):
            first, last = source.find_window(lane, begin, end)
            if last > first:
                pieces.append(source.cut(lane, first, last))
                lanes.append((lane, last - first))
        numbers = np.repeat(*np.asarray(lanes, np.int64).reshape(-1, 2).T).astype(np.uint32)
        joined = join_bins(pieces)
        if level <= self.index.raw_level or not joined.start.size:
            return Cut(numbers, joined)
        merged = merge_bins(joined, level, numbers)
        if merged is joined:
            return Cut(numbers, joined)
        # A run never crosses lanes, so its lane is that of its longest slice's start: found again by counting runs.
        kept = np.concatenate(([0], np.cumsum(merged.merged)))[:-1]
        counted = np.concatenate(([0], np.cumsum(joined.merged)))[:-1]
        return Cut(numbers[np.searchsorted(counted, kept)], merged)

    def _find_source(self, level: int) -> LaneFile:
        stored = [known for known in self.index.levels if known <= level]
        return self._levels[stored[-1]] if stored and level > self.index.raw_level else self.raw

    def place(self, position: int) -> Place:
        """Return the slice at a position in lane order."""
        lane = int(np.searchsorted(self.lane_offsets, position, "right")) - 1
        at = position - int(self.lane_offsets[lane])
        bins = self.raw.cut(lane, at, at + 1)
        return Place(position, lane, *(int(column[0]) for column in (bins.start, bins.end, bins.name, bins.id)))

    def find_place(self, track: int, start_ns: int, sid: int) -> Place | None:
        """Return a slice by its number; None if it is not on this track. `start_ns` is since the run's epoch."""
        start = start_ns - self.index.origin_ns
        for lane, entry in enumerate(self.index.lanes):
            if entry.track != track:
                continue
            row = self.raw.find_slice(lane, start, sid)
            if row is not None:
                return self.place(int(self.lane_offsets[lane]) + row)
        return None
