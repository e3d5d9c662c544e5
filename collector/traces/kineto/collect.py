"""Collect the decoded events of all chunks into columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import Ints, Mask
from collector.traces.kineto.digest import MEMORY_FIELDS, Columns, Counts, Digest, Opened, Slices, digest
from collector.traces.kineto.duplicates import find_repeated
from collector.traces.kineto.events import Loose
from collector.traces.kineto.intern import ArgTexts, BoundedNumbers, Numbers
from collector.traces.kineto.outlying import Extent, Reach, find_reach
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.stream import Chunk


@dataclass
class Log:
    """Everything that the chunks held. `threads` numbers (pid, tid); `duplicates` counts events that the file lists
    again, which are left out."""

    names: BoundedNumbers = field(default_factory=lambda: BoundedNumbers("(a name left out)"))
    categories: BoundedNumbers = field(default_factory=lambda: BoundedNumbers(""))
    threads: BoundedNumbers = field(default_factory=lambda: BoundedNumbers((-1, -1)))
    args: ArgTexts = field(default_factory=ArgTexts)
    labels: dict[tuple[Loose, Loose, str], str] = field(default_factory=dict)
    scratch: Scratch = field(default_factory=Scratch)
    counter_names: Numbers = field(default_factory=Numbers)
    counts: Counts = field(default_factory=Counts)
    slices: int = 0
    duplicates: int = 0
    _extent: Extent = field(default_factory=Extent)
    _opened: Opened = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns = {name: self.scratch.column() for name in Columns.__dataclass_fields__}
        self._memory = [self.scratch.column() for _ in MEMORY_FIELDS]
        self._counters = [self.scratch.column() for _ in range(3)]

    def add(self, found: Chunk | Digest) -> None:
        """Take the events of one chunk."""
        found = digest(found, self._opened) if isinstance(found, Chunk) else found
        slices = found.slices
        used = ([slices.columns.thread] if slices else []) + ([found.memory[1]] if found.memory else [])
        threads = self.threads.take(found.threads, np.concatenate(used) if used else np.empty(0, np.int64))
        if slices is not None:
            self._add_slices(slices, threads)
        for column, (name, values) in zip(self._memory, zip(MEMORY_FIELDS, found.memory, strict=False), strict=False):
            column.append(threads[values] if name == "thread" else values)
        self._add_counters(found)
        self.labels.update(found.labels)
        self.counts.add(found.counts)
        self._extent.take(found.extent)

    def _add_slices(self, found: Slices, threads: Ints) -> None:
        columns = found.columns
        numbers = {
            "name": self.names.take(found.names, columns.name),
            "category": self.categories.take(found.categories, columns.category),
            "thread": threads,
            "args": self.args.take(found.args, columns.args),
        }
        for name, column in self._columns.items():
            values = getattr(columns, name)
            column.append(numbers[name][values] if name in numbers else values)
        self.slices += len(columns)

    def _add_counters(self, found: Digest) -> None:
        numbers = [self.counter_names[name] for name in found.counter_names]
        rows = [(numbers[number], *rest) for number, *rest in found.counters]
        for column, values in zip(self._counters, np.array(rows, np.int64).reshape(-1, 3).T, strict=True):
            column.append(values)

    def columns(self) -> Columns:
        """Return the columns of all chunks, once."""
        columns = Columns(**{name: column.finish() for name, column in self._columns.items()})
        if not self._extent.can_be_true() and len(columns):
            columns = self._drop_outlying(columns, find_reach(columns.start_ns))
        return self._drop_duplicates(columns)

    @cached_property
    def memory(self) -> dict[str, Ints]:
        """The memory events by field of MEMORY_FIELDS, ABSENT where one has none."""
        return {name: column.finish() for name, column in zip(MEMORY_FIELDS, self._memory, strict=True)}

    @cached_property
    def counters(self) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
        """The values of counters: number in `counter_names` (process and name), time, value."""
        name, time_ns, bits = (column.finish() for column in self._counters)
        return name, time_ns, bits.view(np.float64)

    def _drop_outlying(self, columns: Columns, reach: Reach) -> Columns:
        """Leave out slices, allocations and values of counters that lie beyond reach, and count them."""
        held = reach.holds(columns.start_ns, columns.duration_ns)
        self.counts.untimed += len(columns) - int(held.sum())
        self.slices = int(held.sum())
        near = reach.holds(self.memory["time_ns"])
        self.counts.untimed += len(near) - int(near.sum())
        self.memory = {name: self._pick(values, near) for name, values in self.memory.items()}
        number, time_ns, values = self.counters
        near = reach.holds(time_ns)
        self.counts.untimed += len(near) - int(near.sum())
        self.counters = number[near], time_ns[near], values[near]
        return Columns(**{name: self._pick(getattr(columns, name), held) for name in self._columns})

    def _drop_duplicates(self, columns: Columns) -> Columns:
        """Leave out slices that are listed again; allocations, too, where slices are.

        Two allocations of one size in one microsecond look the same in old files, so they alone prove nothing. Nor does
        a slice of no length without an id, which adds no time either.
        """
        again = find_repeated([getattr(columns, name) for name in self._columns], self.scratch)
        for rows in blocks(len(columns)):
            has_id = (columns.correlation[rows] > 0) | (columns.external[rows] > 0) | (columns.sequence[rows] > 0)
            again[rows] &= has_id | (columns.duration_ns[rows] > 0)
        found = int(again.sum())
        if not found:
            return columns
        self.slices -= found
        memory = list(self.memory.values())
        told_again = find_repeated(memory, self.scratch)
        self.duplicates = found + int(told_again.sum())
        self.memory = {name: self._pick(values, ~told_again) for name, values in self.memory.items()}
        return Columns(**{name: self._pick(getattr(columns, name), ~again) for name in self._columns})

    def _pick(self, values: Ints, mask: Mask) -> Ints:
        column = self.scratch.column()
        for rows in blocks(len(values)):
            column.append(values[rows][mask[rows]])
            self.scratch.release()
        return column.finish()

    def count_unclosed(self) -> int:
        """Return how many begun slices never ended."""
        return sum(map(len, self._opened.values()))
