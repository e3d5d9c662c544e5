"""The per-lane files of a timeline's cache, as columns of numbers: slices, the bins of a level, and points of counters.

Files are read and never mapped to memory. So a cut file or a failing disk is an error of one request, and does not end
the server.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler_server.timeline.pyramid import Bins, single_bins

Kinds = tuple[type[np.number[Any]], ...]
_EVERY = 4096
"""Distance between values of the first column kept in memory, so that a search reads the file only once."""
_BLOCK_ROWS = 512
"""Rows read at once when single rows are needed."""
_AHEAD_BYTES = 256 << 20
"""Size up to which a file is not read ahead, because the system's cache soon holds it whole."""


def starts_file(path: Path) -> Path:
    """Return the path of the file with values to keep in memory: the length of each lane, and some starts in it."""
    return path.with_suffix(".starts")


class ColumnWriter:
    """A writer of lanes, one after the other. `rows` is the number of rows written."""

    def __init__(self, path: Path, kinds: Kinds) -> None:
        self.rows = 0
        self._kinds = kinds
        self._starts_file = starts_file(path)
        self._counts: list[int] = []
        self._starts: list[npt.NDArray[np.int64]] = []
        self._sink = path.open("wb")

    def write(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        for column, kind in zip(columns, self._kinds, strict=True):
            self._sink.write(np.ascontiguousarray(column, kind).data)
        self.rows += len(columns[0])
        self._counts.append(len(columns[0]))
        self._starts.append(np.array(columns[0][::_EVERY], np.int64))

    def close(self) -> None:
        self._sink.close()
        head = np.array([len(self._counts), *self._counts], np.int64)
        self._starts_file.write_bytes(np.concatenate([head, *self._starts]).tobytes())

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ColumnFile:
    """A reader of a file by `ColumnWriter`. The first column of a lane is ascending. Raises OSError for a cut file."""

    def __init__(self, path: Path, kinds: Kinds) -> None:
        self._path = path
        self._kinds = kinds
        self._sizes = [np.dtype(kind).itemsize for kind in kinds]
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)
        kept = np.fromfile(starts_file(path), np.int64)
        lanes = int(kept[0])
        self.counts: list[int] = kept[1 : lanes + 1].tolist()
        self._bases = np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64))) * sum(self._sizes)
        bounds = lanes + 1 + np.cumsum([0, *(-(-count // _EVERY) for count in self.counts)])
        self._starts = [kept[low:high] for low, high in pairwise(bounds.tolist())]

    def read(self, lane: int, column: int, first: int, last: int) -> npt.NDArray[Any]:
        wanted = max(last - first, 0) * self._sizes[column]
        raw = os.pread(self._handle, wanted, self._locate(lane, column, first))
        while len(raw) < wanted:  # a call gives 2 GiB at most
            more = os.pread(self._handle, wanted - len(raw), self._locate(lane, column, first) + len(raw))
            if not more:
                raise OSError(errno.EIO, "the file is shorter than it was written", str(self._path))
            raw += more
        return np.frombuffer(raw, self._kinds[column])

    def pick(self, lane: int, column: int, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Return the values of a column of a lane in single rows, given in any order."""
        found = np.empty(rows.size, self._kinds[column])
        order = np.argsort(rows, kind="stable")
        blocks = rows[order] // _BLOCK_ROWS
        for part in np.split(order, np.flatnonzero(blocks[1:] != blocks[:-1]) + 1) if rows.size else ():
            low, high = int(rows[part[0]]), int(rows[part[-1]])
            found[part] = self.read(lane, column, low, high + 1)[rows[part] - low]
        return found

    def find_start(self, lane: int, at: int) -> int:
        """Return the number of the first row of a lane that starts at `at` or later; else the number of rows."""
        place = int(np.searchsorted(self._starts[lane], at, "left"))
        low, high = max(place - 1, 0) * _EVERY, min(place * _EVERY, self.counts[lane])
        return low + int(np.searchsorted(self.read(lane, 0, low, high), at, "left"))

    def read_ahead(self, begin: int, end: int) -> None:
        """Make the system load a time range of all lanes at once, so that the reads do not wait for the disk one by
        one.
        """
        if int(self._bases[-1]) <= _AHEAD_BYTES or not hasattr(os, "posix_fadvise"):
            return
        for lane, starts in enumerate(self._starts):
            if starts.size < 2:
                continue
            low, high = (int(place) for place in np.searchsorted(starts, (begin, end), "left"))
            first, last = max(low - 1, 0) * _EVERY, min(high * _EVERY, self.counts[lane])
            for column, size in enumerate(self._sizes):
                at = self._locate(lane, column, first)
                os.posix_fadvise(self._handle, at, (last - first) * size, os.POSIX_FADV_WILLNEED)

    def _locate(self, lane: int, column: int, row: int) -> int:
        before = sum(self._sizes[:column]) * self.counts[lane]
        return int(self._bases[lane]) + before + row * self._sizes[column]


RAW_KINDS: Kinds = (np.int64, np.int64, np.uint32, np.uint32)
"""Start, end, name and number of a slice."""
BINS_KINDS: Kinds = (np.int64, np.int64, np.int64, np.int64, np.uint32, np.uint32, np.uint32)
POINT_KINDS: Kinds = (np.int64, np.float64)
_END, _ID = 1, 3


class LaneFile(ColumnFile):
    """A file with the slices or bins of each lane. The returned arrays are copies in memory."""

    def cut(self, lane: int, first: int, last: int) -> Bins:
        """Return the bins of a lane from `first` to before `last`. In the raw file, every slice is a bin."""
        columns = [self.read(lane, column, first, last) for column in range(len(self._kinds))]
        return single_bins(*columns) if self._kinds == RAW_KINDS else Bins(*columns)

    def find_window(self, lane: int, begin: int, end: int) -> tuple[int, int]:
        """Return the rows that start in [begin, end): the first row, and the row after the last one.

        The row before the first is included if it still runs at `begin`.
        """
        first, last = self.find_start(lane, begin), self.find_start(lane, end)
        if first and self.read(lane, _END, first - 1, first)[0] > begin:
            first -= 1
        return first, last

    def find_slice(self, lane: int, start: int, number: int) -> int | None:
        first, last = self.find_start(lane, start), self.find_start(lane, start + 1)
        found = np.flatnonzero(self.read(lane, _ID, first, last) == number)
        return first + int(found[0]) if found.size else None


class CounterFile(ColumnFile):
    """A file with times (relative to the origin) and values of each counter, in time order."""

    def series(self, counter: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        return self._points(counter, 0, self.counts[counter])

    def cut(self, counter: int, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the points of a counter in [begin, end), and the point before them, which is valid at `begin`."""
        first = max(self.find_start(counter, begin + 1) - 1, 0)
        return self._points(counter, first, max(self.find_start(counter, end), first))

    def _points(self, counter: int, first: int, last: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        return self.read(counter, 0, first, last), self.read(counter, 1, first, last)
