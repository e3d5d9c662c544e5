"""Sort rows by a column, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.scratch import BLOCK_ROWS, Scratch

Keys = Callable[[Ints], Sequence[npt.NDArray[Any]]]
"""Tells the further keys of some rows, the first key first."""
_SAMPLE_ROWS = 1 << 14


def sort_rows(values: Ints, rows: Ints, scratch: Scratch, keys: Keys = lambda _: ()) -> Ints:
    """Return rows by their values; those of the same value by the keys, and then as they came.

    Many rows are dealt out to ranges of values first, and each range is sorted on its own, so that memory stays that
    of one range.
    """
    if len(rows) <= BLOCK_ROWS:
        return _sort(values, rows, keys)
    cuts = _choose_cuts(values, rows)
    found = scratch.column()
    ranges = scratch.partition(
        len(rows), lambda block: np.searchsorted(cuts, values[rows[block]], side="right"), len(cuts) + 1
    )
    for places in ranges:
        found.append(_sort(values, rows[places], keys))
        scratch.release()
    return found.finish()


def _choose_cuts(values: Ints, rows: Ints) -> Ints:
    """Return values between which about half a block of the rows lies."""
    sample = np.sort(values[rows[:: max(len(rows) // _SAMPLE_ROWS, 1)]])
    count = 2 * -(-len(rows) // BLOCK_ROWS)
    return np.unique(sample[np.arange(1, count) * len(sample) // count])


def _sort(values: Ints, rows: Ints, keys: Keys) -> Ints:
    """Traces are almost sorted, and few slices start together, so that this takes a tenth of a full sort."""
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
