"""Collect the decoded events of all chunks into columns."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import (
    NO_TIME,
    InexactTimesError,
    Ints,
    Mask,
    convert_numbers,
    convert_one,
    convert_texts,
)
from collector.traces.kineto.duplicates import find_repeated
from collector.traces.kineto.events import IDENTITY, MEMORY, NO_ARGS, UNREADABLE, Event, Identity, Loose, MemoryArgs
from collector.traces.kineto.ids import read_ids
from collector.traces.kineto.intern import ArgTexts, BoundedNumbers, Numbers
from collector.traces.kineto.outlying import Extent, Reach, find_reach
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.stream import Chunk

ABSENT = -(1 << 63)
MEMORY_FIELDS = ("time_ns", "thread", *MemoryArgs.__struct_fields__)
# Kineto gives its own spans words in place of a process id.
_PROFILER_PROCESSES = frozenset({"Spans", "Traces", "Tracks", ""})
_NO_IDENTITY = Identity()
# Stacks have no identity that anything links to; the decoding of it is spared.
_UNLINKED = frozenset({"python_function", "Trace", "overhead"})


@dataclass(frozen=True)
class Columns:
    """The slices of a trace, one row per event in the order of the file. Numbers refer to the tables in `Log`."""

    start_ns: Ints
    duration_ns: Ints
    name: Ints
    category: Ints
    thread: Ints
    args: Ints
    correlation: Ints
    external: Ints
    sequence: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


class Rows:
    """Rows of integers that come one by one."""

    def __init__(self, scratch: Scratch, width: int) -> None:
        self._columns = [scratch.column() for _ in range(width)]
        self._waiting: list[tuple[int, ...]] = []

    def add(self, *row: int) -> None:
        self._waiting.append(row)

    def flush(self) -> None:
        """Put the rows into their columns, which take less memory."""
        for column, values in zip(self._columns, zip(*self._waiting, strict=True), strict=False):
            column.append(_ints(values))
        self._waiting.clear()

    def finish(self) -> list[Ints]:
        self.flush()
        return [column.finish() for column in self._columns]


@dataclass
class Log:
    """Everything that the chunks held. `threads` numbers (pid, tid); `lost` counts kinds of event that are not read.

    `rounded` counts events with a time finer than a ns, `untimed` those that are left out because their time or their
    length cannot be true, `unmeasured` slices without a length or with one below 0, which count as 0 ns, and
    `duplicates` events that the file lists again, which are left out.
    """

    names: BoundedNumbers = field(default_factory=lambda: BoundedNumbers("(a name left out)"))
    categories: BoundedNumbers = field(default_factory=lambda: BoundedNumbers(""))
    threads: BoundedNumbers = field(default_factory=lambda: BoundedNumbers((-1, -1)))
    args: ArgTexts = field(default_factory=ArgTexts)
    labels: dict[tuple[Loose, Loose, str], str] = field(default_factory=dict)
    scratch: Scratch = field(default_factory=Scratch)
    counter_names: Numbers = field(default_factory=Numbers)
    slices: int = 0
    flows: int = 0
    metadata: int = 0
    profiler_spans: int = 0
    lost: int = 0
    untimed: int = 0
    rounded: int = 0
    unmeasured: int = 0
    duplicates: int = 0
    _extent: Extent = field(default_factory=Extent)
    _open: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._columns = {name: self.scratch.column() for name in Columns.__dataclass_fields__}
        self._memory = [self.scratch.column() for _ in MEMORY_FIELDS]
        self._counters = Rows(self.scratch, 3)

    def add(self, chunk: Chunk) -> None:
        """Take the events of one chunk."""
        complete: list[Event] = []
        indices: list[int] = []
        memory: list[int] = []
        for index, event in enumerate(chunk.events):
            kind = event.ph
            if kind == "X":
                complete.append(event)
                indices.append(index)
            elif kind == "s" or kind == "f" or kind == "t":
                self.flows += 1
            elif kind != "i" and kind != "I":
                self._add_other(event, complete, indices)
            elif event.name == "[memory]":
                memory.append(index)
            else:
                complete.append(event)
                indices.append(index)
        if complete:
            self._take(self._build(complete, indices, chunk))
        if memory:
            self._add_memory(memory, chunk)
        self._counters.flush()

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
        name, time_ns, bits = self._counters.finish()
        return name, time_ns, bits.view(np.float64)

    def _drop_outlying(self, columns: Columns, reach: Reach) -> Columns:
        """Leave out slices, allocations and values of counters that lie beyond reach, and count them."""
        held = reach.holds(columns.start_ns, columns.duration_ns)
        self.untimed += len(columns) - int(held.sum())
        self.slices = int(held.sum())
        near = reach.holds(self.memory["time_ns"])
        self.untimed += len(near) - int(near.sum())
        self.memory = {name: self._pick(values, near) for name, values in self.memory.items()}
        number, time_ns, values = self.counters
        near = reach.holds(time_ns)
        self.untimed += len(near) - int(near.sum())
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

    def _take(self, columns: Columns) -> None:
        """Keep slices, but for the spans of the profiler itself, which tell of no work, and those without a time."""
        own = [code for (pid, _), code in self.threads.items() if isinstance(pid, str) and pid in _PROFILER_PROCESSES]
        shown = ~np.isin(columns.thread, own) & (columns.category != self.categories.get("Trace", -1))
        self.profiler_spans += len(columns) - int(shown.sum())
        timed = shown & (columns.start_ns != NO_TIME)
        kept = int(timed.sum())
        self.slices += kept
        self.untimed += int(shown.sum()) - kept
        for name, column in self._columns.items():
            values = getattr(columns, name)
            column.append(values if kept == len(columns) else values[timed])
        start_ns = columns.start_ns[timed]
        self._extent.add(start_ns, start_ns + columns.duration_ns[timed])

    def _build(self, events: list[Event], indices: list[int], chunk: Chunk) -> Columns:
        names, categories, threads = self.names, self.categories, self.threads
        rounded = np.zeros(len(events), bool)
        start_ns = _read_starts(events, indices, chunk, rounded)
        duration_ns = _read_lengths(events, indices, chunk, rounded)
        self.rounded += int(rounded.sum())
        start_ns[duration_ns == NO_TIME] = NO_TIME
        without = sum(event.dur is None and event.ph == "X" for event in events)
        self.unmeasured += without + int(((duration_ns < 0) & (duration_ns != NO_TIME)).sum())
        identities = [_read_identity(event) for event in events]
        return Columns(
            start_ns,
            np.maximum(duration_ns, 0),
            _ints([names[event.name] for event in events]),
            _ints([categories[event.cat] for event in events]),
            _ints([threads[(event.pid, event.tid)] for event in events]),
            _ints(self.args.number_all([event.args for event in events])),
            read_ids([entry.correlation for entry in identities]),
            read_ids([entry.external if entry.external is not None else entry.external_old for entry in identities]),
            read_ids([entry.sequence for entry in identities]),
        )

    def _add_other(self, event: Event, complete: list[Event], indices: list[int]) -> None:
        if event.ph == "M":
            self._add_label(event)
        elif event.ph == "C":
            self._add_counter(event)
        elif event.ph == "B":
            self._open[self.threads[(event.pid, event.tid)]].append(event)
        elif event.ph == "E":
            self._close(event, complete, indices)
        else:
            self.lost += 1

    def _add_label(self, event: Event) -> None:
        self.metadata += 1
        label = _decode_args(event).get("name" if event.name != "process_labels" else "labels")
        if isinstance(label, str):
            self.labels[(event.pid, event.tid, str(event.name))] = label

    def _add_memory(self, indices: list[int], chunk: Chunk) -> None:
        events: list[Event] = []
        places: list[int] = []
        values: list[MemoryArgs] = []
        for index in indices:
            event = chunk.events[index]
            try:
                values.append(MEMORY.decode(event.args))
            except UNREADABLE:
                self.lost += 1
                continue
            events.append(event)
            places.append(index)
        rounded = np.zeros(len(events), bool)
        threads = self.threads
        time_ns = _read_starts(events, places, chunk, rounded)
        columns = [
            time_ns,
            _ints([threads[(event.pid, event.tid)] for event in events]),
            *(read_ids([getattr(entry, name) for entry in values], ABSENT) for name in MemoryArgs.__struct_fields__),
        ]
        self.rounded += int(rounded.sum())
        timed = time_ns != NO_TIME
        self.untimed += len(timed) - int(timed.sum())
        for column, found in zip(self._memory, columns, strict=True):
            column.append(found[timed])
        self._extent.add(time_ns[timed], time_ns[timed])

    def _add_counter(self, event: Event) -> None:
        time_ns = convert_one(event.ts)
        if time_ns == NO_TIME:
            self.untimed += 1
            return
        self._extent.widen(time_ns, time_ns)
        for key, value in _decode_args(event).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                number = self.counter_names[(str(event.pid), f"{event.name} {key}")]
                bits = struct.unpack("<q", struct.pack("<d", value))[0]
                self._counters.add(number, time_ns, bits)

    def _close(self, event: Event, complete: list[Event], indices: list[int]) -> None:
        """Make one slice of a begin and an end; the times are computed here, since they stand in two events."""
        stack = self._open.get(self.threads[(event.pid, event.tid)])
        if not stack:
            self.lost += 1
            return
        begun = stack.pop()
        start_ns, end_ns = convert_one(begun.ts), convert_one(event.ts)
        if NO_TIME in (start_ns, end_ns):
            self.untimed += 1
            return
        length_ns = end_ns - start_ns
        self.unmeasured += length_ns < 0
        begun.dur = f"{length_ns // 1000}.{length_ns % 1000:03d}" if length_ns > 0 else 0
        begun.ts = str(begun.ts)
        complete.append(begun)
        indices.append(-1)

    def count_unclosed(self) -> int:
        """Return how many begun slices never ended."""
        return sum(map(len, self._open.values()))


def _read_starts(events: Sequence[Event], indices: Sequence[int], chunk: Chunk, rounded: Mask) -> Ints:
    try:
        return convert_numbers([event.ts for event in events], rounded)
    except InexactTimesError:
        pairs = zip(events, indices, strict=True)
        return convert_texts([chunk.exact[at].ts if at >= 0 else _spell(event.ts) for event, at in pairs], rounded)


def _read_lengths(events: Sequence[Event], indices: Sequence[int], chunk: Chunk, rounded: Mask) -> Ints:
    try:
        return convert_numbers([event.dur or 0 for event in events], rounded)
    except InexactTimesError:
        pairs = zip(events, indices, strict=True)
        texts = [chunk.exact[at].dur if at >= 0 else _spell(event.dur) for event, at in pairs]
        return convert_texts(texts, rounded, absent="0")


def _spell(value: Loose) -> msgspec.Raw:
    return msgspec.Raw(str(value or 0).encode())


def _read_identity(event: Event) -> Identity:
    if event.cat in _UNLINKED or event.args is NO_ARGS:
        return _NO_IDENTITY
    try:
        return IDENTITY.decode(event.args)
    except UNREADABLE:
        return _NO_IDENTITY


def _decode_args(event: Event) -> dict[str, object]:
    try:
        value = msgspec.json.decode(event.args) if event.args is not NO_ARGS else {}
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)
