"""What the cache of a timeline holds lane by lane: every slice, the bins of a level, the points of a counter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler_server.timeline.column_file import ColumnFile, Kinds
from profiler_server.timeline.pyramid import Bins, single_bins

RAW_KINDS: Kinds = (np.int64, np.int64, np.uint32, np.uint32)
"""Start, end, name and number of a slice."""
BINS_KINDS: Kinds = (np.int64, np.int64, np.int64, np.int64, np.uint32, np.uint32, np.uint32)
POINT_KINDS: Kinds = (np.int64, np.float64)
_END, _ID = 1, 3


class LaneFile(ColumnFile):
    """Slices or bins of each lane. What is cut out is in memory of its own."""

    def cut(self, lane: int, first: int, last: int) -> Bins:
        """Return some bins of a lane; of the raw file, every slice as a bin of one."""
        columns = [self.read(lane, column, first, last) for column in range(len(self._kinds))]
        return single_bins(*columns) if self._kinds == RAW_KINDS else Bins(*columns)

    def find_window(self, lane: int, begin: int, end: int) -> tuple[int, int]:
        """Return the rows of a lane that start in [begin, end), with the one before that is still running at `begin`."""
        first, last = self.find_start(lane, begin), self.find_start(lane, end)
        if first and self.read(lane, _END, first - 1, first)[0] > begin:
            first -= 1
        return first, last

    def find_slice(self, lane: int, start: int, number: int) -> int | None:
        """Return the row of the slice of that start and number, of the raw file."""
        first, last = self.find_start(lane, start), self.find_start(lane, start + 1)
        found = np.flatnonzero(self.read(lane, _ID, first, last) == number)
        return first + int(found[0]) if found.size else None


class CounterFile(ColumnFile):
    """Times (relative to the origin) and values of each counter, in time order."""

    def series(self, counter: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        return self._points(counter, 0, self.counts[counter])

    def cut(self, counter: int, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the points of a counter in [begin, end) and the one that holds at `begin`."""
        first = max(self.find_start(counter, begin + 1) - 1, 0)
        return self._points(counter, first, max(self.find_start(counter, end), first))

    def _points(self, counter: int, first: int, last: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        return self.read(counter, 0, first, last), self.read(counter, 1, first, last)


def open_raw(path: Path) -> LaneFile:
    return LaneFile(path, RAW_KINDS)


def open_level(path: Path) -> LaneFile:
    return LaneFile(path, BINS_KINDS)


def open_counters(path: Path) -> CounterFile:
    return CounterFile(path, POINT_KINDS)
