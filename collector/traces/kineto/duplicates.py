"""Find rows that say the same as one before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import Ints, Mask
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.sort import sort_rows

_ROWS_AT_ONCE = 1 << 21
# Odd factors with many bits, as hash functions take them.
_SPREAD, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)

Hashes = npt.NDArray[np.uint64]


def find_repeated(columns: Sequence[Ints], scratch: Scratch) -> Mask:
    """Return which rows are equal to an earlier one in every column; the first column is what the rows are sorted by.

    Rows that are equal have the same hash, and few others have: so only those are sorted.
    """
    first, *others = columns
    again = np.zeros(len(first), bool)
    rows = _find_suspects(columns, scratch)
    order = sort_rows(first, rows, scratch, lambda rows: [column[rows] for column in others])
    for block in blocks(len(order)):
        rows = order[max(block.start - 1, 0) : block.stop]
        pairs = np.flatnonzero(first[rows[1:]] == first[rows[:-1]])
        for column in others:
            pairs = pairs[column[rows[pairs + 1]] == column[rows[pairs]]]
        again[rows[pairs + 1]] = True
        scratch.release()
    return again


def _find_suspects(columns: Sequence[Ints], scratch: Scratch) -> Ints:
    """Return the rows whose hash another row has, too."""
    column = scratch.column()
    for rows in blocks(len(columns[0])):
        column.append(_hash(columns, rows).view(np.int64))
        scratch.release()
    hashes = column.finish().view(np.uint64)
    repeated = np.concatenate([np.empty(0, np.uint64), *_list_repeated(hashes, scratch)])
    found = scratch.column()
    for rows in blocks(len(hashes) if len(repeated) else 0):
        at = np.minimum(np.searchsorted(repeated, hashes[rows]), len(repeated) - 1)
        found.append(np.flatnonzero(repeated[at] == hashes[rows]) + rows.start)
        scratch.release()
    return found.finish()


def _hash(columns: Sequence[Ints], rows: slice) -> Hashes:
    found = np.zeros(rows.stop - rows.start, np.uint64)
    for column in columns:
        found = (found ^ column[rows].view(np.uint64)) * _SPREAD
        found = (found ^ (found >> _HALF)) * _STEP
    return found


def _list_repeated(hashes: Hashes, scratch: Scratch) -> Iterator[Hashes]:
    """Yield the values that occur more than once, rising, from a range of values after the other."""
    bits = (len(hashes) // _ROWS_AT_ONCE).bit_length()
    for number in range(1 << bits):
        mine = hashes
        if bits:
            top = np.uint64(64 - bits)
            mine = np.concatenate(
                [hashes[rows][hashes[rows] >> top == number] for rows in blocks(len(hashes))] or [hashes]
            )
            scratch.release()
        ordered = np.sort(mine)
        yield np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
