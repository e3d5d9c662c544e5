"""Slices on their way into a cache: their lanes, and columns in mapped files that are sorted by key in bounded memory.

A lane holds slices of one track and depth that never overlap. A slice that overlaps another slice goes to an extra
lane, so that no slice is dropped. So both starts and ends are sorted within a lane. A binary search then finds the
slices of a window, and at most one earlier slice extends into the window.
"""

from __future__ import annotations

import heapq
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints
from profiler_server.timeline.pyramid import Int32s, NameCollector
from profiler_server.timeline.sources import BATCH_ROWS, Batch


class LaneAllocator:
    """A chooser of a lane for each slice. Slices of one track and depth must come in start order over all batches."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._running: dict[tuple[int, int], _Row] = {}

    @property
    def keys(self) -> list[tuple[int, int, int]]:
        """Return (track, depth, extra) of every lane, by lane number."""
        return list(self._numbers)

    def place(self, track: Int32s, depth: Int32s, start: Ints, end: Ints) -> Int32s:
        """Return the lane number of each slice. A slice without length occupies the nanosecond of its start."""
        lanes = np.empty(start.size, np.int32)
        order = np.lexsort((start, depth, track))
        track, depth = track[order], depth[order]
        begins = np.flatnonzero(np.concatenate(([True], (track[1:] != track[:-1]) | (depth[1:] != depth[:-1]))))
        for first, last in zip(begins.tolist(), [*begins[1:].tolist(), start.size], strict=True):
            if first == last:
                continue
            rows = order[first:last]
            key = (int(track[first]), int(depth[first]))
            row = self._running.setdefault(key, _Row())
            extra = row.place(start[rows], np.maximum(end[rows], start[rows] + 1))
            numbers = [self._numbers.setdefault((*key, i), len(self._numbers)) for i in range(row.lanes)]
            lanes[rows] = np.asarray(numbers, np.int32)[extra]
        return lanes


class _Row:
    """The slices of one track and depth, on as many lanes as slices overlap at once."""

    def __init__(self) -> None:
        self.lanes = 1
        self._reach = np.iinfo(np.int64).min
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []

    def place(self, start: Ints, end: Ints) -> Int32s:
        """Return the extra lane of each slice, 0 without an overlap. Only slices that overlap are assigned in a loop."""
        reach = np.maximum.accumulate(np.concatenate(([self._reach], end)))
        alone = start >= reach[:-1]
        extra = np.zeros(start.size, np.int32)
        if not alone.all():
            # A cluster starts where all earlier slices have ended. Clusters of one slice are not walked.
            walked = np.flatnonzero(~alone | np.concatenate((~alone[1:], [False])))
            extra[walked] = self._walk(start[walked].tolist(), end[walked].tolist(), alone[walked].tolist())
        if alone[-1]:
            self._busy, self._free = [(int(end[-1]), int(extra[-1]))], list(range(1, self.lanes))
        self._reach = int(reach[-1])
        return extra

    def _walk(self, starts: list[int], ends: list[int], alone: list[bool]) -> list[int]:
        placed = []
        for start, end, fresh in zip(starts, ends, alone, strict=True):
            if fresh:
                self._busy, self._free = [], list(range(self.lanes))
            while self._busy and self._busy[0][0] <= start:
                heapq.heappush(self._free, heapq.heappop(self._busy)[1])
            if self._free:
                lane = heapq.heappop(self._free)
            else:
                lane, self.lanes = self.lanes, self.lanes + 1
            heapq.heappush(self._busy, (end, lane))
            placed.append(lane)
        return placed


class Scratch:
    """The slices read so far, in mapped files without a name. `rows` is their number."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.rows = 0
        self.names = NameCollector()
        self.lanes = LaneAllocator()
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._open = ExitStack()
        self.reserve(0)

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` rows in total, and keep the existing rows."""
        self.start = self.new_column("start", np.int64, capacity)
        self.end = self.new_column("end", np.int64, capacity)
        self.name = self.new_column("name", np.uint32, capacity)
        self.sid = self.new_column("sid", np.uint32, capacity)
        self.lane = self.new_column("lane", np.int32, capacity)

    def new_column(self, name: str, dtype: Any, size: int) -> npt.NDArray[Any]:
        """Return a column of `size` values in its own file: the values that are already in the file, followed by zeros.

        Raises OSError if the disk is full. The space is reserved first, because access to a mapped page without disk
        space would end the process. The file has no name, because another process could cut a named file, and access
        beyond its end would also end this process.
        """
        if not size:
            return np.zeros(0, dtype)
        if name not in self._files:
            self._files[name] = self._open.enter_context(tempfile.TemporaryFile(dir=self.folder))  # noqa: SIM115
        file = self._files[name]
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
        else:
            file.truncate(size * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, "r+", shape=(size,))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def fill(self, batch: Batch, source: int) -> None:
        """Append a batch of slices. Batches of one `source` must come in start order.

        `source` is the number of the table with the slices; equal names from two tables get different numbers.
        """
        if not batch.start.size:
            return
        part = slice(self.rows, self.rows + batch.start.size)
        self.start[part], self.end[part], self.sid[part] = batch.start, batch.end, batch.sid
        self.name[part] = self.names.number(batch.name, batch.category, source)
        self.lane[part] = self.lanes.place(batch.track, batch.depth, batch.start, batch.end)
        self.rows = part.stop
        let_go(self.start, self.end, self.sid, self.name, self.lane)

    def parts(self) -> Iterator[slice]:
        """Yield the ranges of rows in which the slices are processed. Release memory pages after each range."""
        for at in range(0, self.rows, BATCH_ROWS):
            yield slice(at, min(at + BATCH_ROWS, self.rows))
            let_go(self.start, self.end, self.sid, self.name, self.lane)


def let_go(*columns: npt.NDArray[Any]) -> None:
    """Release the memory pages of mapped columns. Written values stay in the files."""
    for column in columns:
        mapped = getattr(column, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class Scatter:
    """The positions of rows sorted by key, found batch by batch. `counts` is the number of rows of each key."""

    def __init__(self, counts: Ints) -> None:
        self.offsets: Ints = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self._next = self.offsets[:-1].copy()

    def place(self, keys: npt.NDArray[np.integer]) -> Ints:
        """Return the position of each row of the next batch."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        sizes = np.diff(np.append(first, ordered.size))
        within = np.arange(ordered.size) - np.repeat(first, sizes)
        places = np.empty(keys.size, np.int64)
        places[order] = self._next[ordered] + within
        self._next[ordered[first]] += sizes
        return places
