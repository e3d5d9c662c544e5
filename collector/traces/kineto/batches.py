"""Cut rows into batches that can be summed one by one, because no sum goes across two of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.sort import sort_rows

BATCH_ROWS = 1 << 17


def split_batches(step_row: Ints, name: Ints, names: int, scratch: Scratch, size: int = BATCH_ROWS) -> Iterator[Ints]:
    """Yield the places of rows in batches of whole steps, in order. A step that is too long is cut between two names.

    `names` is the number of names, `size` about how many rows a batch has.
    """
    keys = _find_keys(step_row, name, names, scratch, size)
    order = sort_rows(keys, scratch.numbers(len(keys)), scratch)
    start = 0
    while start < len(order):
        end = start + size
        if end < len(order):
            last = int(keys[order[end]])
            end = _find_place(keys, order, last)
            end = _find_place(keys, order, last + 1) if end <= start else end
        yield order[start:end]
        start = end


def _find_keys(step_row: Ints, name: Ints, names: int, scratch: Scratch, size: int) -> Ints:
    """Return what tells the rows of two batches apart: the step, with the name where a step is too long for one."""
    counts = np.zeros(int(step_row.max(initial=-1)) + 2, np.int64)
    for rows in blocks(len(step_row)):
        counts += np.bincount(step_row[rows] + 1, minlength=len(counts))
    if counts.max(initial=0) <= size:
        return step_row
    keys = scratch.column()
    for rows in blocks(len(step_row)):
        keys.append(step_row[rows] * names + name[rows])
    return keys.finish()


def _find_place(keys: Ints, order: Ints, key: int) -> int:
    """Return the first place in the order whose key is at least this."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if keys[order[middle]] < key:
            low = middle + 1
        else:
            high = middle
    return low
