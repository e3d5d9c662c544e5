"""Columns of slices on disk, one record batch per lane: Arrow IPC without compression, read by memory map."""

from __future__ import annotations

import mmap
import os
import weakref
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiler_server.timeline.pyramid import Bins, single_bins

RAW_SCHEMA = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("name", pa.uint32()), ("id", pa.uint32())])
BINS_SCHEMA = pa.schema(
    [
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("busy", pa.int64()),
        ("longest", pa.int64()),
        ("merged", pa.uint32()),
        ("name", pa.uint32()),
        ("id", pa.uint32()),
    ]
)


def drop_pages(mapped: mmap.mmap) -> None:
    """Let the pages of a map no longer count as this process's; what was written to them is in the file."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


_EVERY = 4096
"""One start of so many is kept in memory: a search in a file that is not in the system's cache reads one place of it."""
_AHEAD_BYTES = 256 << 20
"""Files up to this size are soon in the system's cache as a whole."""


def starts_file(path: Path) -> Path:
    """Return the name of the file with the starts that are kept in memory."""
    return path.with_suffix(".starts")


class LaneWriter:
    """Writes one batch per lane, in lane order; `rows` is how many were written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._starts_file = starts_file(path)
        self._starts: list[npt.NDArray[np.int64]] = []
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)

    def write(self, columns: tuple[npt.NDArray[Any], ...]) -> None:
        arrays = [pa.array(np.ascontiguousarray(c), f.type) for c, f in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self.rows += len(columns[0])
        self._starts.append(np.array(columns[0][::_EVERY], np.int64))

    def close(self) -> None:
        self._writer.close()
        self._sink.close()
        self._starts_file.write_bytes(np.concatenate([np.zeros(0, np.int64), *self._starts]).tobytes())

    def __enter__(self) -> LaneWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class LaneFile:
    """Reads a lane when it is first asked for; the arrays are views of the map and cost no memory of their own."""

    def __init__(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._map = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        self._handle: int | None = None
        if len(self._map) > _AHEAD_BYTES and hasattr(os, "posix_fadvise"):
            self._handle = handle
            weakref.finalize(self, os.close, handle)
        else:
            os.close(handle)
        self._base = _address(np.frombuffer(self._map, np.uint8))
        self._reader = pa.ipc.open_file(pa.py_buffer(self._map))
        self._lanes: dict[int, Bins] = {}
        sizes = [self._reader.get_batch(lane).num_rows for lane in range(self._reader.num_record_batches)]
        bounds = np.cumsum([0, *(-(-size // _EVERY) for size in sizes)])
        starts = np.fromfile(starts_file(path), np.int64)
        self._starts = [starts[low:high] for low, high in pairwise(bounds)]

    def lane(self, number: int) -> Bins:
        """Return the bins of a lane; of the raw file, every slice as a bin of one."""
        found = self._lanes.get(number)
        if found is None:
            batch = self._reader.get_batch(number)
            columns = [batch.column(i).to_numpy(zero_copy_only=True) for i in range(batch.num_columns)]
            found = _LazyRaw(*columns) if len(columns) == len(RAW_SCHEMA) else Bins(*columns)
            self._lanes[number] = found
        return found

    def read_ahead(self, begin: int, end: int) -> None:
        """Ask the system for what a stretch of time needs of every lane at once, rather than page by page as it is read."""
        if self._handle is None:
            return
        for number, starts in enumerate(self._starts):
            if starts.size < 2:
                continue
            low, high = np.searchsorted(starts, (begin, end), "left")
            part = slice(max(int(low) - 1, 0) * _EVERY, int(high) * _EVERY)
            for column in {_address(column): column[part] for column in self.lane(number)}.values():
                if column.size:
                    offset = _address(column) - self._base
                    os.posix_fadvise(self._handle, offset, column.nbytes, os.POSIX_FADV_WILLNEED)

    def find_window(self, number: int, begin: int, end: int) -> tuple[int, int]:
        """Return the rows of a lane that start in [begin, end), with the one before that is still running at `begin`."""
        first, last = self._find_start(number, begin), self._find_start(number, end)
        if first and self.lane(number).end[first - 1] > begin:
            first -= 1
        return first, last

    def _find_start(self, number: int, at: int) -> int:
        place = int(np.searchsorted(self._starts[number], at, "left"))
        low = max(place - 1, 0) * _EVERY
        return low + int(np.searchsorted(self.lane(number).start[low : place * _EVERY], at, "left"))

    def let_go(self) -> None:
        """Give the pages back to the system's cache: they are read again from there."""
        drop_pages(self._map)


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


class _LazyRaw(Bins):
    """The raw columns of a lane as bins; lengths and counts are made for the part that is cut out."""

    __slots__ = ()

    def __new__(cls, start: Any, end: Any, name: Any, slice_id: Any) -> _LazyRaw:
        return super().__new__(cls, start, end, start, start, name, name, slice_id)

    def cut(self, first: int, last: int) -> Bins:
        return single_bins(self.start[first:last], self.end[first:last], self.name[first:last], self.id[first:last])


class CounterFile:
    """Reads counters: one batch of times and values per counter."""

    def __init__(self, path: Path) -> None:
        self._map = pa.memory_map(str(path))
        self._reader = pa.ipc.open_file(self._map)
        self.count = self._reader.num_record_batches

    def series(self, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return times (relative to the origin) and values of a counter, in time order."""
        batch = self._reader.get_batch(number)
        return batch.column(0).to_numpy(zero_copy_only=True), batch.column(1).to_numpy(zero_copy_only=True)
