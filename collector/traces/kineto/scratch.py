"""Arrays on disk, so that memory stays small for a trace of any size.

A long array is written to a file without a name and mapped. The pages of the file belong to the process's memory only
while they are in use: `release` drops the pages, and the next access maps them again. Short arrays stay in memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Floats, Ints, Mask

Keys = Callable[[Ints], Sequence[npt.NDArray[Any]]]
"""A function that returns the further sort keys of some rows, the most important first."""
BLOCK_ROWS = 1 << 19
"""The number of rows processed at a time."""
MOST_RESIDENT_BYTES = 160 << 20
"""Pages are dropped only above this size: mapping them again for every block takes longer than its processing."""
_SPILLED_ROWS = 1 << 18
_SAMPLE_ROWS = 1 << 14


class Scratch:
    """A maker of arrays; long arrays lie on disk. `folder` holds their files, None for the system's temporary folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._maps: list[mmap.mmap] = []

    def array(self, length: int, fill: int) -> Ints:
        """Return a new array filled with `fill`, for writing in any order. Raises OSError if the disk is full."""
        if length <= _SPILLED_ROWS:
            return np.full(length, fill, np.int64)
        with self.open() as file:
            # A page that the disk has no room for would end the process, so the room is taken first.
            os.posix_fallocate(file.fileno(), 0, length * 8)
            made = self.map(file, mmap.ACCESS_WRITE)
        for rows in self.blocks(length):
            made[rows] = fill
        return made

    def blocks(self, length: int, size: int | None = None) -> Iterator[slice]:
        """Yield slices that cover `length` rows, in order. Drop pages of memory after each slice."""
        size = size or BLOCK_ROWS
        for start in range(0, length, size):
            yield slice(start, min(start + size, length))
            self.release()

    def stretches(self, rows: Ints) -> Iterator[Ints]:
        """Yield ascending rows in groups of nearby rows. Memory pages are dropped after each group, as in `blocks`."""
        if not len(rows):
            return
        edges = np.searchsorted(rows, np.arange(int(rows[0]), int(rows[-1]) + BLOCK_ROWS, BLOCK_ROWS))
        for part in filter(len, np.split(rows, edges)):
            yield part
            self.release()

    def floats(self, length: int, fill: float = 0.0) -> Floats:
        """Return a new array of floats filled with `fill`. Raises OSError if the disk is full."""
        bits = int(np.float64(fill).view(np.int64))
        return self.array(length, bits).view(np.float64)

    def column(self) -> Column:
        return Column(self)

    def compute(self, length: int, find: Callable[[slice], Ints], size: int | None = None) -> Ints:
        """Return `length` values, computed block by block by `find`. Raises OSError if the disk is full."""
        column = self.column()
        for rows in self.blocks(length, size):
            column.append(find(rows))
        return column.finish()

    def numbers(self, length: int) -> Ints:
        return self.compute(length, lambda rows: np.arange(rows.start, rows.stop))

    def where(self, mask: Mask) -> Ints:
        return self.compute(len(mask), lambda rows: np.flatnonzero(mask[rows]) + rows.start)

    def sort(self, values: Ints, rows: Ints, keys: Keys = lambda _: ()) -> Ints:
        """Return rows sorted by their values. Rows with equal values are sorted by the keys, then stay in their
        original order.

        Many rows are first distributed to ranges of values. Each range is then sorted alone, so that memory is limited
        to one range.
        """
        if len(rows) <= BLOCK_ROWS:
            return _sort(values, rows, keys)
        cuts = _choose_cuts(values, rows)
        found = self.column()
        ranges = self.partition(
            len(rows), lambda block: np.searchsorted(cuts, values[rows[block]], side="right"), len(cuts) + 1
        )
        for places in ranges:
            found.append(_sort(values, rows[places], keys))
            self.release()
        return found.finish()

    def partition(self, length: int, find: Callable[[slice], npt.NDArray[Any]], count: int) -> list[Ints]:
        """Return the rows of each group, in order. `find` maps a block of rows to group numbers, 0 to `count` - 1."""
        sizes = np.zeros(count, np.int64)
        for rows in self.blocks(length):
            sizes += np.bincount(find(rows), minlength=count)
        ordered, edges = self.array(length, 0), np.cumsum(sizes)
        free = edges - sizes
        for rows in self.blocks(length):
            groups = find(rows)
            # A small number of groups fits 16 bits, which are sorted ten times as fast.
            order = np.argsort(groups.astype(np.int16) if count < 1 << 15 else groups, kind="stable")
            held = np.bincount(groups, minlength=count)
            first = 0
            for group in np.flatnonzero(held).tolist():
                size = int(held[group])
                ordered[free[group] : free[group] + size] = order[first : first + size] + rows.start
                free[group] += size
                first += size
        return np.split(ordered, edges[:-1]) if count else []

    def open(self) -> Any:
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def map(self, file: Any, access: int) -> Ints:
        """Return the content of a file as an array, mapped with the `access` of `mmap.mmap`."""
        self._maps.append(mmap.mmap(file.fileno(), 0, access=access))
        return np.frombuffer(self._maps[-1], np.int64)

    def release(self) -> None:
        """Drop the pages of every array if this process holds many. The system's cache keeps their content."""
        if self._maps and read_resident_bytes() > MOST_RESIDENT_BYTES:
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)


def read_resident_bytes() -> int:
    """Return this process's resident memory in bytes; a very large number if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 1 << 62


class Column:
    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._waiting: list[Ints] = []
        self._rows = 0
        self._file: Any = None

    def append(self, values: npt.NDArray[np.signedinteger[Any]]) -> None:
        """Add values. Raises OSError if the disk is full."""
        self._waiting.append(np.ascontiguousarray(values, np.int64))
        self._rows += len(values)
        if self._rows > _SPILLED_ROWS:
            self._flush()

    def finish(self) -> Ints:
        """Return the whole array. No values can be added afterwards."""
        if self._file is None:
            return np.concatenate(self._waiting) if self._waiting else np.empty(0, np.int64)
        self._flush()
        with self._file as file:
            return self._scratch.map(file, mmap.ACCESS_READ)

    def _flush(self) -> None:
        self._file = self._file or self._scratch.open()
        for values in self._waiting:
            data = values.data.cast("B")
            while data:
                data = data[self._file.write(data) :]
        self._waiting.clear()
        self._rows = 0


def _choose_cuts(values: Ints, rows: Ints) -> Ints:
    """Return the values at which to cut the rows into ranges of about BLOCK_ROWS / 2 rows. `rows` index `values`."""
    sample = np.sort(values[rows[:: max(len(rows) // _SAMPLE_ROWS, 1)]])
    count = 2 * -(-len(rows) // BLOCK_ROWS)
    return np.unique(sample[np.arange(1, count) * len(sample) // count])


def _sort(values: Ints, rows: Ints, keys: Keys) -> Ints:
    """Return rows by value, then by keys. Keys only of rows with equal values take a tenth of the time of a sort."""
    mine = values[rows]
    if (mine[1:] < mine[:-1]).any():
        rows = rows[np.argsort(mine, kind="stable")]
        mine = values[rows]
    same = mine[1:] == mine[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    further = keys(rows[tied]) if len(tied) else ()
    if further:
        order = np.lexsort((*reversed(further), mine[tied]))
        rows = rows.copy()
        rows[tied] = rows[tied[order]]
    return rows
