"""The input of every table: a trace with its steps, phases and time base, and helpers for batches and columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.arrays import from_numbers, from_texts
from collector.format.intervals import Ints, Mask
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.classify.tree import Tree
from collector.traces.kineto.decode.numbering import compress
from collector.traces.kineto.scratch import Scratch
from collector.traces.kineto.steps.model import Phases, Steps


@dataclass(frozen=True)
class Reading:
    """A trace with its steps and phases. `origin_ns` is the run's epoch as a time of the file."""

    trace: Trace
    steps: Steps
    phases: Phases
    tree: Tree
    origin_ns: int

    @cached_property
    def step_row(self) -> Ints:
        """The row in `steps` of each slice, -1 outside of steps. Device work gets the row of its launch, if linked."""
        trace, steps = self.trace, self.steps

        def find(rows: slice) -> Ints:
            times = trace.find_launch_ns(rows)
            on_device = ~trace.is_host[rows] & (trace.launch[rows] < 0)
            return np.where(on_device, steps.locate(times, host=False), steps.locate(times))

        return trace.log.scratch.compute(len(trace.columns), find)

    def number_steps(self, rows: Ints) -> pa.Array:
        return from_numbers(np.append(self.steps.number, 0)[rows], rows < 0)

    def to_run(self, times_ns: Ints) -> Ints:
        return times_ns - self.origin_ns


BATCH_ROWS = 1 << 17


def encode(codes: Ints, find_text: Callable[[int], str | None]) -> pa.DictionaryArray:
    """Return a dictionary column of the texts that occur. Negative numbers, and None of `find_text`, become null."""
    used, compact = compress(codes)
    place: dict[str, int] = {}
    picked = (find_text(code) if code >= 0 else None for code in used.tolist())
    target = [-1 if text is None else place.setdefault(text, len(place)) for text in picked]
    indices = np.array(target, np.int32)[compact]
    return pa.DictionaryArray.from_arrays(from_numbers(indices, indices < 0), from_texts(list(place)))


def nullable(values: Ints, absent: Mask | None = None) -> pa.Array:
    """Return integers as an Arrow array, null where `absent` is true. By default, negative integers are null."""
    return from_numbers(values, values < 0 if absent is None else absent)


def split_batches(step_row: Ints, name: Ints, names: int, scratch: Scratch, size: int = BATCH_ROWS) -> Iterator[Ints]:
    """Yield row indices in batches of whole steps, in order. A step that is too long is split at a change of name.

    So rows with the same step and name are in one batch. `names` is the number of names, `size` the approximate number
    of rows in a batch.
    """
    keys = _find_keys(step_row, name, names, scratch, size)
    order = scratch.sort(keys, scratch.numbers(len(keys)))
    start = 0
    while start < len(order):
        end = start + size
        if end < len(order):
            last = int(keys[order[end]])
            end = find_place(keys, order, last)
            end = find_place(keys, order, last + 1) if end <= start else end
        yield order[start:end]
        scratch.release()
        start = end


def _find_keys(step_row: Ints, name: Ints, names: int, scratch: Scratch, size: int) -> Ints:
    """Return a key for each row, by which batches are never split: its step, and its name in very long steps."""
    counts = np.zeros(int(step_row.max(initial=-1)) + 2, np.int64)
    for rows in scratch.blocks(len(step_row)):
        counts += np.bincount(step_row[rows] + 1, minlength=len(counts))
    if counts.max(initial=0) <= size:
        return step_row
    return scratch.compute(len(step_row), lambda rows: step_row[rows] * names + name[rows])


def find_place(values: Ints, order: Ints, value: int) -> int:
    """Return the first position in `order` whose row has at least `value`. `order` has the rows sorted by value."""
    return bisect_left(range(len(order)), value, key=lambda place: values[order[place]])
