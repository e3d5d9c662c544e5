"""Join the decoded chunks of a trace to columns of events, without duplicates and without impossible times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from collector.format.intervals import Floats, Ints, Mask
from collector.traces.kineto.decode.arguments import Arguments
from collector.traces.kineto.decode.digest import MEMORY_FIELDS, Columns, Counts, Digest, Opened, Slices, digest
from collector.traces.kineto.decode.events import Chunk, Loose
from collector.traces.kineto.decode.numbering import BoundedNumbers, Numbers
from collector.traces.kineto.scratch import Scratch

REACH_NS = 365 * 86_400 * 10**9
"""No trace is a year long: a time further from the middle comes from a broken clock or none."""
_SAMPLED_ROWS = 1 << 16


@dataclass
class Log:
    """The content of all chunks. `threads` maps (pid, tid) to a number; `duplicates` were omitted."""

    names: BoundedNumbers = field(default_factory=lambda: BoundedNumbers("(a name left out)"))
    categories: BoundedNumbers = field(default_factory=lambda: BoundedNumbers(""))
    threads: BoundedNumbers = field(default_factory=lambda: BoundedNumbers((-1, -1)))
    args: Arguments = field(default_factory=Arguments)
    labels: dict[tuple[Loose, Loose, str], str] = field(default_factory=dict)
    scratch: Scratch = field(default_factory=Scratch)
    counter_names: Numbers = field(default_factory=Numbers)
    counts: Counts = field(default_factory=Counts)
    duplicates: int = 0
    _opened: Opened = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns = {name: self.scratch.column() for name in Columns.__dataclass_fields__}
        self._memory = [self.scratch.column() for _ in MEMORY_FIELDS]
        self._counters = [self.scratch.column() for _ in range(3)]

    def add(self, found: Chunk | Digest) -> None:
        found = digest(found, self._opened) if isinstance(found, Chunk) else found
        slices = found.slices
        used = ([slices.columns.thread] if slices else []) + ([found.memory[1]] if found.memory else [])
        threads = self.threads.take(found.threads, np.concatenate(used) if used else np.empty(0, np.int64))
        if slices is not None:
            self._add_slices(slices, threads)
        for column, (name, values) in zip(self._memory, zip(MEMORY_FIELDS, found.memory, strict=False), strict=False):
            column.append(threads[values] if name == "thread" else values)
        number, time_ns, value = zip(*found.counters, strict=True) if found.counters else ((), (), ())
        self._counters[0].append(self.counter_names.number(found.counter_names)[np.array(number, np.int64)])
        self._counters[1].append(np.array(time_ns, np.int64))
        self._counters[2].append(np.array(value, np.float64).view(np.int64))
        self.labels.update(found.labels)
        self.counts.add(found.counts)

    def _add_slices(self, found: Slices, threads: Ints) -> None:
        columns = found.columns
        numbers = {
            "name": self.names.take(found.names, columns.name),
            "category": self.categories.take(found.categories, columns.category),
            "thread": threads,
            "args": self.args.take([b"" if text == b"{}" else text for text in found.args], columns.args),
        }
        for name, column in self._columns.items():
            values = getattr(columns, name)
            column.append(numbers[name][values] if name in numbers else values)

    def columns(self) -> Columns:
        """Return the columns of all chunks. May be called only once."""
        columns = Columns(**{name: column.finish() for name, column in self._columns.items()})
        return self._drop_duplicates(self._drop_implausible(columns) if len(columns) else columns)

    @cached_property
    def memory(self) -> dict[str, Ints]:
        """Map each field of MEMORY_FIELDS to its values in the memory events; ABSENT where an event lacks the field."""
        return {name: column.finish() for name, column in zip(MEMORY_FIELDS, self._memory, strict=True)}

    @cached_property
    def counters(self) -> tuple[Ints, Ints, Floats]:
        """Three columns on the values of counters: number of the counter in `counter_names`, time, value."""
        name, time_ns, bits = (column.finish() for column in self._counters)
        return name, time_ns, bits.view(np.float64)

    def _drop_implausible(self, columns: Columns) -> Columns:
        """Return the slices with possible times; drop and count other slices, allocations and counter values."""
        reach = find_reach(columns.start_ns)
        number, time_ns, values = self.counters
        spans = (columns.start_ns, columns.duration_ns), (self.memory["time_ns"], None), (time_ns, None)
        held, near, true = (is_within(self.scratch, reach, *span) for span in spans)
        left = sum(len(mask) - int(mask.sum()) for mask in (held, near, true))
        if not left:
            return columns
        self.counts.untimed += left
        self.memory = {name: self._pick(values, near) for name, values in self.memory.items()}
        self.counters = number[true], time_ns[true], values[true]
        return columns.map(lambda values: self._pick(values, held))

    def _drop_duplicates(self, columns: Columns) -> Columns:
        """Return the slices without duplicates. If there are duplicates, drop duplicate allocations as well.

        Allocations that look the same are no proof of duplicates: in old files, two allocations of one size in one
        microsecond look the same. Equal slices of zero length without an id are no proof, either, and add no time.
        """
        again = find_repeated([getattr(columns, name) for name in self._columns], self.scratch)
        for rows in self.scratch.blocks(len(columns)):
            has_id = (columns.correlation[rows] > 0) | (columns.external[rows] > 0) | (columns.sequence[rows] > 0)
            again[rows] &= has_id | (columns.duration_ns[rows] > 0)
        found = int(again.sum())
        if not found:
            return columns
        told_again = find_repeated(list(self.memory.values()), self.scratch)
        self.duplicates = found + int(told_again.sum())
        self.memory = {name: self._pick(values, ~told_again) for name, values in self.memory.items()}
        return columns.map(lambda values: self._pick(values, ~again))

    def _pick(self, values: Ints, mask: Mask) -> Ints:
        return self.scratch.compute(len(values), lambda rows: values[rows][mask[rows]])

    def count_unclosed(self) -> int:
        return sum(map(len, self._opened.values()))


def find_reach(start_ns: Ints) -> tuple[int, int]:
    """Return the range of plausible times: the median start ± one year. At least one start is needed."""
    # The middle is where most events are even if a sample tells it, and whether the trace counts from 1970 or from 0.
    middle_ns = int(np.median(start_ns[:: max(len(start_ns) // _SAMPLED_ROWS, 1)]))
    return middle_ns - REACH_NS, middle_ns + REACH_NS


def is_within(scratch: Scratch, reach: tuple[int, int], start_ns: Ints, duration_ns: Ints | None = None) -> Mask:
    """Return a mask of the starts within the range; with `duration_ns`, of the slices that lie wholly within it."""
    held = np.empty(len(start_ns), bool)
    for rows in scratch.blocks(len(held)):
        starts = start_ns[rows]
        ends = starts if duration_ns is None else starts + duration_ns[rows]
        held[rows] = (starts >= reach[0]) & (ends <= reach[1])
    return held


def find_repeated(columns: Sequence[Ints], scratch: Scratch) -> Mask:
    """Return a mask of the rows that equal an earlier row. Fast if the first column rarely repeats."""
    first, *others = columns
    again = np.zeros(len(first), bool)
    order = scratch.sort(first, scratch.numbers(len(first)), lambda rows: [column[rows] for column in others])
    for block in scratch.blocks(len(order)):
        rows = order[max(block.start - 1, 0) : block.stop]
        pairs = np.flatnonzero(first[rows[1:]] == first[rows[:-1]])
        for column in others:
            pairs = pairs[column[rows[pairs + 1]] == column[rows[pairs]]]
        again[rows[pairs + 1]] = True
    return again
