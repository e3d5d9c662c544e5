"""Find rows that say the same as one before them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.traces.kineto.clock import Ints, Mask
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.sort import sort_rows


def find_repeated(columns: Sequence[Ints], scratch: Scratch) -> Mask:
    """Return which rows are equal to an earlier one in every column; the first column is what the rows are sorted by."""
    first, *others = columns
    again = np.zeros(len(first), bool)
    order = sort_rows(first, scratch.numbers(len(first)), scratch, lambda rows: [column[rows] for column in others])
    for block in blocks(len(order)):
        rows = order[max(block.start - 1, 0) : block.stop]
        pairs = np.flatnonzero(first[rows[1:]] == first[rows[:-1]])
        for column in others:
            pairs = pairs[column[rows[pairs + 1]] == column[rows[pairs]]]
        again[rows[pairs + 1]] = True
        scratch.release()
    return again
