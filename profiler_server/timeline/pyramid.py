"""The level-of-detail pyramid: slices at least a bin wide stay single, runs of shorter ones in a bin become one.

A bin keeps start, end, busy time, the number of slices merged, and the name and id of its longest slice, so that nothing disappears: counts
are conserved over all levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints

Int32s = npt.NDArray[np.int32]
Uint32s = npt.NDArray[np.uint32]
LEVEL_STEP = 2
"""Stored levels are this many powers of two apart; those between are made on the fly."""


class Bins(NamedTuple):
    """Columns of slices or bins of one lane, or of several lanes one after the other, in start order within a lane."""

    start: Ints
    end: Ints
    busy: Ints
    longest: Ints
    merged: Uint32s
    name: Uint32s
    id: Uint32s

    def cut(self, first: int, last: int) -> Bins:
        return Bins(
            self.start[first:last],
            self.end[first:last],
            self.busy[first:last],
            self.longest[first:last],
            self.merged[first:last],
            self.name[first:last],
            self.id[first:last],
        )


def join_bins(pieces: list[Bins]) -> Bins:
    """Put pieces one after the other; of none, an empty one."""
    if not pieces:
        return single_bins(*(np.zeros(0, np.int64),) * 2, *(np.zeros(0, np.uint32),) * 2)
    return pieces[0] if len(pieces) == 1 else Bins(*map(np.concatenate, zip(*pieces, strict=True)))


def single_bins(start: Ints, end: Ints, name: Uint32s, slice_id: Uint32s) -> Bins:
    """Return every slice as a bin of its own."""
    length = end - start
    return Bins(start, end, length, length, np.ones(start.size, np.uint32), name, slice_id)


def merge_bins(bins: Bins, level: int, lane: npt.NDArray[np.integer] | None = None) -> Bins:
    """Merge neighbours that are shorter than 2**level ns and start in the same bin. `lane` tells lanes apart."""
    keep, first = find_runs(bins, level, lane)
    if first.size == bins.start.size:
        return bins
    last = np.append(first[1:], bins.start.size) - 1
    longest = np.maximum.reduceat(bins.longest, first)
    # The run's longest slice, the first of equals: positions that reach the run's maximum, first of each run.
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
    """Return the run that each bin belongs to, and where each run begins."""
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
