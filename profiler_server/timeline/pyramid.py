"""The level-of-detail pyramid, and the dictionary of names to which its bins refer by number.

On a level, a slice that is at least one bin wide stays single. Consecutive shorter slices within a bin are merged. A
bin has start, end, busy time, the number of merged slices, and the name and id of its longest slice. No slice
disappears: all levels have the same total count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints

Int32s = npt.NDArray[np.int32]
Uint32s = npt.NDArray[np.uint32]
LEVEL_STEP = 2
"""The distance of stored levels in powers of two. Levels between them are computed on request."""


class Bins(NamedTuple):
    """Slices, or bins that merge neighbours, as columns: of one lane or several lanes, each in order of start."""

    start: Ints
    end: Ints
    busy: Ints
    longest: Ints
    merged: Uint32s
    name: Uint32s
    id: Uint32s

    def cut(self, first: int, last: int) -> Bins:
        return Bins._make(column[first:last] for column in self)


def join_bins(pieces: list[Bins]) -> Bins:
    """Return the pieces one after the other; without pieces, return empty bins."""
    if not pieces:
        return single_bins(*(np.zeros(0, np.int64),) * 2, *(np.zeros(0, np.uint32),) * 2)
    return pieces[0] if len(pieces) == 1 else Bins(*map(np.concatenate, zip(*pieces, strict=True)))


def single_bins(start: Ints, end: Ints, name: Uint32s, slice_id: Uint32s) -> Bins:
    """Return the slices as bins of one slice each."""
    length = end - start
    return Bins(start, end, length, length, np.ones(start.size, np.uint32), name, slice_id)


def merge_bins(bins: Bins, level: int, lane: npt.NDArray[np.integer] | None = None) -> Bins:
    """Return the bins with some neighbours merged: those that are shorter than 2**level ns and start in the same bin.

    `lane` is the lane of each bin. Bins of different lanes are not merged.
    """
    keep, first = find_runs(bins, level, lane)
    if first.size == bins.start.size:
        return bins
    last = np.append(first[1:], bins.start.size) - 1
    longest = np.maximum.reduceat(bins.longest, first)
    # The longest slice of the run, and the first of equals: find the positions that reach the run's maximum, and take
    # the first of each run.
    reaching = np.flatnonzero(bins.longest == longest[keep])
    chosen = reaching[np.searchsorted(keep[reaching], np.arange(first.size))]
    return Bins(
        bins.start[first],
        bins.end[last],
        np.add.reduceat(bins.busy, first),
        longest,
        np.add.reduceat(bins.merged, first),
        bins.name[chosen],
        bins.id[chosen],
    )


def find_runs(
    bins: Bins, level: int, lane: npt.NDArray[np.integer] | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the run of each bin, and the first bin of each run. `merge_bins` merges the bins of a run into one."""
    if not bins.start.size:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    wide = (bins.end - bins.start) >= (1 << level)
    home = bins.start >> level
    opens = np.ones(bins.start.size, bool)
    opens[1:] = (home[1:] != home[:-1]) | wide[1:] | wide[:-1]
    if lane is not None:
        opens[1:] |= lane[1:] != lane[:-1]
    return np.cumsum(opens) - 1, np.flatnonzero(opens)


def list_levels(raw_level: int, top_level: int) -> Iterator[int]:
    """Return the levels that may be stored, finest first."""
    return iter(range(raw_level + LEVEL_STEP, top_level + 1, LEVEL_STEP))


class NameCollector:
    """A collection that numbers pairs of name and category in order of appearance.

    `source` is the number of the table that has the pair; equal pairs from two tables get different numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str, str], int] = {}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(name, category) for _, name, category in self._numbers]

    def number(self, name: pa.DictionaryArray, category: pa.DictionaryArray, source: int) -> Uint32s:
        """Return the number of each row's pair. The loop runs over distinct pairs only."""
        width = max(len(category.dictionary), 1)
        codes = name.indices.to_numpy().astype(np.int64) * width + category.indices.to_numpy()
        distinct, place = np.unique(codes, return_inverse=True)
        names = name.dictionary.take(pa.array(distinct // width)).to_pylist()
        categories = category.dictionary.take(pa.array(distinct % width)).to_pylist()
        numbers = [
            self._numbers.setdefault((source, n or "", c or ""), len(self._numbers))
            for n, c in zip(names, categories, strict=True)
        ]
        result: Uint32s = np.asarray(numbers, np.uint32)[place.reshape(-1)]
        return result


@dataclass(frozen=True)
class Names:
    """The dictionary of names as columns; the number of a name is its row. `total_ns` and `longest_ns` are of whole
    slices."""

    name: list[str]
    category: list[str]
    count: Ints
    total_ns: Ints
    longest_ns: Ints

    def find(self, text: str) -> npt.NDArray[np.intp]:
        """Return the numbers of the names that contain a text. Upper and lower case count as equal."""
        found = pc.match_substring(pa.array(self.name, pa.string()), text, ignore_case=True)
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))

    def describe(self, number: int) -> tuple[str, str, int, int, float, int]:
        """Return name, category, number of slices, total ns, mean ns and longest ns."""
        count, total_ns = int(self.count[number]), int(self.total_ns[number])
        longest_ns = int(self.longest_ns[number])
        return self.name[number], self.category[number], count, total_ns, total_ns / max(count, 1), longest_ns


_COUNTED = ("count", "total_ns", "longest_ns")


def write_names(path: Path, names: Names) -> None:
    texts = {name: pa.array(getattr(names, name), pa.string()) for name in ("name", "category")}
    table = pa.table(texts | {name: getattr(names, name) for name in _COUNTED})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_names(path: Path) -> Names:
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all().combine_chunks()
        return Names(
            table["name"].to_pylist(),
            table["category"].to_pylist(),
            *(np.array(table[column].to_numpy()) for column in _COUNTED),
        )
