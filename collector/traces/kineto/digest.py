"""What the events of one chunk say, as columns with numbers of their own: no chunk needs another one for it.

Only slices that begin in one chunk and end in a later one need what came before, so what is open is handed on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import numpy as np

from collector.traces.kineto.clock import (
    NO_TIME,
    InexactTimesError,
    Ints,
    Mask,
    convert_numbers,
    convert_one,
    convert_texts,
)
from collector.traces.kineto.events import MEMORIES, MEMORY, NO_ARGS, UNREADABLE, Event, Loose, MemoryArgs
from collector.traces.kineto.ids import read_ids
from collector.traces.kineto.intern import Numbers
from collector.traces.kineto.outlying import Extent
from collector.traces.kineto.percall import read_call_arguments
from collector.traces.kineto.stream import Chunk

ABSENT = -(1 << 63)
MEMORY_FIELDS = ("time_ns", "thread", *MemoryArgs.__struct_fields__)
# Kineto gives its own spans words in place of a process id.
_PROFILER_PROCESSES = frozenset({"Spans", "Traces", "Tracks", ""})
# Stacks have no identity that anything links to.
_UNLINKED = frozenset({"python_function", "Trace", "overhead"})
_FLOWS, _INSTANTS = frozenset("sft"), frozenset("iI")
_PLAIN = _FLOWS | _INSTANTS | {"X"}

T = TypeVar("T")
Opened = dict[tuple[Loose, Loose], list[Event]]
"""Slices that have begun and not ended, by process and thread."""


class NeedsHistoryError(ValueError):
    """A chunk has events that say something only together with those of chunks before it."""


@dataclass(frozen=True)
class Columns:
    """Slices, one row per event in the order of the file. Numbers refer to the lists of a digest, or of the `Log`."""

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


@dataclass
class Counts:
    """`lost` counts kinds of event that are not read.

    `rounded` counts events with a time finer than a ns, `untimed` those that are left out because their time or their
    length cannot be true, `unmeasured` slices without a length or with one below 0, which count as 0 ns.
    """

    flows: int = 0
    metadata: int = 0
    profiler_spans: int = 0
    lost: int = 0
    untimed: int = 0
    rounded: int = 0
    unmeasured: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class Slices:
    """The slices of a chunk, and what their numbers stand for, in the order in which each comes first."""

    columns: Columns
    names: tuple[Loose, ...]
    categories: tuple[str | None, ...]
    args: tuple[bytes, ...]


@dataclass(frozen=True)
class Digest:
    """A chunk without its events. Lists are in the order in which their entries come first, which numbers them from 0."""

    slices: Slices | None
    memory: tuple[Ints, ...]
    """By field of MEMORY_FIELDS, ABSENT where an event has none; empty where there is no event."""
    counters: tuple[tuple[int, int, int], ...]
    """Number in `counter_names`, time, the bits of the value."""
    threads: tuple[tuple[Loose, Loose], ...]
    counter_names: tuple[tuple[str, str], ...]
    labels: dict[tuple[Loose, Loose, str], str]
    counts: Counts
    extent: Extent


def digest(chunk: Chunk, opened: Opened | None = None) -> Digest:
    """Return what the events of a chunk say. Raises NeedsHistoryError without `opened` if that is needed."""
    return _Digesting(chunk, opened).run()


@dataclass(frozen=True)
class _Sorted:
    """Slices with their places in the chunk (-1 for one that is made of two events), and the places of memory events."""

    complete: Sequence[Event]
    indices: Sequence[int]
    memory: Sequence[int] = ()


class _Digesting:
    def __init__(self, chunk: Chunk, opened: Opened | None) -> None:
        self._chunk, self._opened = chunk, opened
        self._counts, self._extent = Counts(), Extent()
        self._threads, self._counter_names = Numbers(), Numbers()
        self._counters: list[tuple[int, int, int]] = []
        self._labels: dict[tuple[Loose, Loose, str], str] = {}

    def run(self) -> Digest:
        events = self._sort()
        return Digest(
            self._read_slices(events) if events.complete else None,
            self._read_memory(events.memory) if events.memory else (),
            tuple(self._counters),
            tuple(self._threads),
            tuple(self._counter_names),
            self._labels,
            self._counts,
            self._extent,
        )

    def _sort(self) -> _Sorted:
        events = self._chunk.events
        phases = [event.ph for event in events]
        kinds = set(phases)
        if not kinds <= _PLAIN:
            return self._sort_all()
        if kinds == {"X"}:
            return _Sorted(events, range(len(events)))
        chosen = [phase == "X" for phase in phases]
        memory = []
        for place in [place for place, phase in enumerate(phases) if phase in _INSTANTS] if kinds & _INSTANTS else ():
            is_memory = events[place].name == "[memory]"
            chosen[place] = not is_memory
            if is_memory:
                memory.append(place)
        complete = list(compress(events, chosen))
        self._counts.flows = len(events) - len(complete) - len(memory)
        return _Sorted(complete, list(compress(range(len(events)), chosen)), memory)

    def _sort_all(self) -> _Sorted:
        complete: list[Event] = []
        indices: list[int] = []
        memory: list[int] = []
        for index, event in enumerate(self._chunk.events):
            kind = event.ph
            if kind in _FLOWS:
                self._counts.flows += 1
            elif kind not in ("X", "i", "I"):
                begun = self._read_other(event)
                if begun is not None:
                    complete.append(begun)
                    indices.append(-1)
            elif kind != "X" and event.name == "[memory]":
                memory.append(index)
            else:
                complete.append(event)
                indices.append(index)
        return _Sorted(complete, indices, memory)

    def _read_other(self, event: Event) -> Event | None:
        """Read an event that is no slice by itself. Return the slice that ends with it."""
        if event.ph == "M":
            self._add_label(event)
        elif event.ph == "C":
            self._add_counter(event)
        elif event.ph in ("B", "E"):
            return self._read_half(event)
        else:
            self._counts.lost += 1
        return None

    def _read_half(self, event: Event) -> Event | None:
        if self._opened is None:
            raise NeedsHistoryError
        thread = event.pid, event.tid
        self._threads[thread]
        if event.ph == "E":
            return self._close(event, self._opened.get(thread))
        self._opened.setdefault(thread, []).append(event)
        return None

    def _close(self, event: Event, stack: list[Event] | None) -> Event | None:
        """Make one slice of a begin and an end; the times are computed here, since they stand in two events."""
        if not stack:
            self._counts.lost += 1
            return None
        begun = stack.pop()
        start_ns, end_ns = convert_one(begun.ts), convert_one(event.ts)
        if NO_TIME in (start_ns, end_ns):
            self._counts.untimed += 1
            return None
        length_ns = end_ns - start_ns
        self._counts.unmeasured += length_ns < 0
        begun.dur = f"{length_ns // 1000}.{length_ns % 1000:03d}" if length_ns > 0 else 0
        begun.ts = str(begun.ts)
        return begun

    def _add_label(self, event: Event) -> None:
        self._counts.metadata += 1
        label = _decode_args(event).get("name" if event.name != "process_labels" else "labels")
        if isinstance(label, str):
            self._labels[(event.pid, event.tid, str(event.name))] = label

    def _add_counter(self, event: Event) -> None:
        time_ns = convert_one(event.ts)
        if time_ns == NO_TIME:
            self._counts.untimed += 1
            return
        self._extent.widen(time_ns, time_ns)
        for key, value in _decode_args(event).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                number = self._counter_names[(str(event.pid), f"{event.name} {key}")]
                self._counters.append((number, time_ns, struct.unpack("<q", struct.pack("<d", value))[0]))

    def _read_slices(self, found: _Sorted) -> Slices:
        events = found.complete
        rounded = np.zeros(len(events), bool)
        start_ns = _read_starts(events, found.indices, self._chunk, rounded)
        duration_ns = self._read_lengths(found, rounded)
        self._counts.rounded += int(rounded.sum())
        start_ns[duration_ns == NO_TIME] = NO_TIME
        name, names = _number([event.name for event in events])
        category, categories = _number([event.cat for event in events])
        thread = _number_into(self._threads, zip([e.pid for e in events], [e.tid for e in events], strict=True))
        linked = np.array([entry not in _UNLINKED for entry in categories], bool)[category]
        args = read_call_arguments([event.args for event in events], linked)
        times = start_ns, np.maximum(duration_ns, 0)
        columns = Columns(*times, name, category, thread, args.number, args.correlation, args.external, args.sequence)
        return Slices(self._keep(columns, categories), names, categories, args.texts)

    def _read_lengths(self, found: _Sorted, rounded: Mask) -> Ints:
        lengths = [event.dur for event in found.complete]
        if not set(map(type, lengths)) <= {int, float}:
            self._counts.unmeasured += sum(
                length is None and event.ph == "X" for length, event in zip(lengths, found.complete, strict=True)
            )
            lengths = [length or 0 for length in lengths]
        duration_ns = _convert_lengths(lengths, found, self._chunk, rounded)
        self._counts.unmeasured += int(((duration_ns < 0) & (duration_ns != NO_TIME)).sum())
        return duration_ns

    def _keep(self, columns: Columns, categories: tuple[str | None, ...]) -> Columns:
        """Keep slices, but for the spans of the profiler itself, which tell of no work, and those without a time."""
        own = [isinstance(pid, str) and pid in _PROFILER_PROCESSES for pid, _ in self._threads]
        shown = ~np.array(own, bool)[columns.thread]
        if "Trace" in categories:
            shown &= columns.category != categories.index("Trace")
        timed = shown & (columns.start_ns != NO_TIME)
        told, kept = int(shown.sum()), int(timed.sum())
        self._counts.profiler_spans += len(columns) - told
        self._counts.untimed += told - kept
        if kept < len(columns):
            columns = Columns(**{name: getattr(columns, name)[timed] for name in Columns.__dataclass_fields__})
        self._extent.add(columns.start_ns, columns.start_ns + columns.duration_ns)
        return columns

    def _read_memory(self, indices: Sequence[int]) -> tuple[Ints, ...]:
        events = [self._chunk.events[index] for index in indices]
        values = _decode_memory(events)
        if None in values:
            known = [value is not None for value in values]
            self._counts.lost += known.count(False)
            events, indices = list(compress(events, known)), list(compress(indices, known))
        told = [value for value in values if value is not None]
        rounded = np.zeros(len(events), bool)
        time_ns = _read_starts(events, indices, self._chunk, rounded)
        columns = (
            time_ns,
            _number_into(self._threads, zip([e.pid for e in events], [e.tid for e in events], strict=True)),
            *(read_ids(list(map(attrgetter(name), told)), ABSENT) for name in MemoryArgs.__struct_fields__),
        )
        self._counts.rounded += int(rounded.sum())
        timed = time_ns != NO_TIME
        self._counts.untimed += len(timed) - int(timed.sum())
        self._extent.add(time_ns[timed], time_ns[timed])
        return tuple(found[timed] for found in columns)


def _decode_memory(events: Sequence[Event]) -> Sequence[MemoryArgs | None]:
    """Return the arguments of memory events, None for those that cannot be read."""
    with suppress(*UNREADABLE):
        values: list[MemoryArgs] = MEMORIES.decode(b"[" + b",".join([event.args for event in events]) + b"]")
        if len(values) == len(events):
            return values
    return [_decode_one(event) for event in events]


def _decode_one(event: Event) -> MemoryArgs | None:
    try:
        return MEMORY.decode(event.args)
    except UNREADABLE:
        return None


def _number(values: Sequence[T]) -> tuple[Ints, tuple[T, ...]]:
    """Number what repeats. Return the number of each value, and what they stand for."""
    numbers = Numbers()
    return _number_into(numbers, values), tuple(numbers)


def _number_into(numbers: Numbers, values: Any) -> Ints:
    return np.array(list(map(numbers.__getitem__, values)), np.int64)


def _read_starts(events: Sequence[Event], indices: Sequence[int], chunk: Chunk, rounded: Mask) -> Ints:
    try:
        return convert_numbers([event.ts for event in events], rounded)
    except InexactTimesError:
        return convert_texts(_spell_all(events, indices, chunk, lambda entry: entry.ts), rounded)


def _convert_lengths(lengths: Sequence[Loose], found: _Sorted, chunk: Chunk, rounded: Mask) -> Ints:
    try:
        return convert_numbers(lengths, rounded)
    except InexactTimesError:
        texts = _spell_all(found.complete, found.indices, chunk, lambda entry: entry.dur)
        return convert_texts(texts, rounded, absent="0")


def _spell_all(
    events: Sequence[Event], indices: Sequence[int], chunk: Chunk, pick: Callable[[Any], Any]
) -> list[msgspec.Raw]:
    """Return the times as the file spells them; those that were computed here are spelled anew."""
    exact = chunk.exact
    pairs = zip(events, indices, strict=True)
    return [pick(exact[at]) if at >= 0 else msgspec.Raw(str(pick(event) or 0).encode()) for event, at in pairs]


def _decode_args(event: Event) -> dict[str, object]:
    try:
        value = msgspec.json.decode(event.args) if event.args is not NO_ARGS else {}
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}
