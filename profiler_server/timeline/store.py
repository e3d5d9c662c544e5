"""An open timeline: the mapped files of its cache, and the questions that tiles, search and details ask of them."""

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
    TILE_BITS,
    Index,
)
from profiler_server.timeline.lane_file import CounterFile, LaneFile
from profiler_server.timeline.levels import RAW_FILE, level_file
from profiler_server.timeline.names import Names, read_names
from profiler_server.timeline.pyramid import Bins, join_bins, merge_bins
from profiler_server.timeline.scratch import let_go

_READS_HELD = 16


class Cut(NamedTuple):
    """Bins of a stretch of time, lane after lane; `lane` names the lane of each."""

    lane: npt.NDArray[np.uint32]
    bins: Bins


class Place(NamedTuple):
    """Where a slice is: its place in lane order, its lane, and its times relative to the origin."""

    position: int
    lane: int
    start: int
    end: int
    name: int
    sid: int


class Timeline:
    """One rank's timeline. Reads are lazy and mapped; opening costs a few milliseconds at any size."""

    def __init__(self, folder: Path, rank: RankRun, stamp: str) -> None:
        self.folder = folder
        self.rank = rank
        self.stamp = stamp
        self._reads = 0
        self.index = msgspec.json.decode((folder / INDEX_FILE).read_bytes(), type=Index)
        self.raw = LaneFile(folder / RAW_FILE)
        self._levels = {level: LaneFile(folder / level_file(level)) for level in self.index.levels}
        self.counters = CounterFile(folder / COUNTERS_FILE)
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

    @cached_property
    def order(self) -> npt.NDArray[np.uint32]:
        """Places of the slices in lane order, sorted by name and start."""
        if not self.index.slices:
            return np.zeros(0, np.uint32)
        return np.memmap(self.folder / ORDER_FILE, np.uint32, "r")

    def cut_tile(self, level: int, number: int) -> Cut:
        """Return what starts in tile `number` of a level, and per lane the one that already runs at its edge.

        At the raw level every slice is single; above it runs of slices shorter than a bin are merged.
        """
        begin = number << (level + TILE_BITS)
        return self.cut(level, begin, begin + (1 << (level + TILE_BITS)))

    def cut(self, level: int, begin: int, end: int) -> Cut:
        """Return what `cut_tile` does for any stretch of time, relative to the origin."""
        source = self._find_source(level)
        source.read_ahead(begin, end)
        pieces, lanes = [], []
        for lane in range(len(self.index.lanes)):
            first, last = source.find_window(lane, begin, end)
            if last > first:
                pieces.append(source.lane(lane).cut(first, last))
                lanes.append((lane, last - first))
        self.count_read()
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

    def count_read(self, pages: int = 1) -> None:
        """Count a tile, or another read of as many pages, and let go of what many of them have mapped."""
        self._reads += pages
        if self._reads >= _READS_HELD:
            self.let_go()

    def let_go(self) -> None:
        """Give the mapped pages back, so that what was read once does not count as the server's memory for ever."""
        self._reads = 0
        for file in (self.raw, *self._levels.values()):
            file.let_go()
        if isinstance(self.order, np.memmap):
            let_go(self.order)

    def lane_of(self, position: int) -> int:
        return int(np.searchsorted(self.lane_offsets, position, "right")) - 1

    def place(self, position: int) -> Place:
        """Return the slice at a place of lane order."""
        lane = self.lane_of(position)
        at = position - int(self.lane_offsets[lane])
        bins = self.raw.lane(lane)
        return Place(position, lane, int(bins.start[at]), int(bins.end[at]), int(bins.name[at]), int(bins.id[at]))

    def find_place(self, track: int, start_ns: int, sid: int) -> Place | None:
        """Find the slice of that number on a track; `start_ns` is since the run's epoch."""
        start = start_ns - self.index.origin_ns
        for lane, entry in enumerate(self.index.lanes):
            if entry.track != track:
                continue
            bins = self.raw.lane(lane)
            first, last = np.searchsorted(bins.start, start, "left"), np.searchsorted(bins.start, start, "right")
            found = np.flatnonzero(bins.id[first:last] == sid)
            if found.size:
                return self.place(int(self.lane_offsets[lane] + first + found[0]))
        return None
