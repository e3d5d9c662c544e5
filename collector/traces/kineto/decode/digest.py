"""Parse the events of one chunk into columns. Names and threads are numbered anew in each chunk, so no earlier chunk is
needed.

Slices that begin in one chunk and end in a later chunk are the exception. For these, the slices that are still open are
passed on to the next chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter

import msgspec
import numpy as np

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.decode.call_arguments import read_call_arguments
from collector.traces.kineto.decode.clock import NO_TIME, InexactTimesError, convert_numbers, convert_one, convert_texts
from collector.traces.kineto.decode.events import (
    MEMORIES,
    NO_ARGS,
    UNREADABLE,
    Chunk,
    Event,
    Loose,
    MemoryArgs,
    decode_each,
    read_ids,
)
from collector.traces.kineto.decode.numbering import Numbers

ABSENT = -(1 << 63)
MEMORY_FIELDS = ("time_ns", "thread", *MemoryArgs.__struct_fields__)
# Kineto gives its own spans words in place of a process id.
_PROFILER_PROCESSES = frozenset({"Spans", "Traces", "Tracks", ""})
# Stacks have no identity that anything links to.
_UNLINKED = frozenset({"python_function", "Trace", "overhead"})
_FLOWS, _INSTANTS = frozenset("sft"), frozenset("iI")

Opened = dict[tuple[Loose, Loose], list[Event]]
"""Slices that have begun and not ended, by process and thread."""


class NeedsHistoryError(ValueError):
    """A chunk has events that cannot be read without earlier chunks."""


@dataclass(frozen=True)
class Columns:
    """Slices as columns: one row per event, in the file's order. Names and other texts are given by their indexes in the
    lists of a digest, or of the `Log`.
    """

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

    def map(self, change: Callable[[Ints], Ints]) -> Columns:
        return Columns(**{name: change(getattr(self, name)) for name in self.__dataclass_fields__})


@dataclass
class Counts:
    """Counts of events. `lost` counts events of unread kinds, and end events without a begin event.

    `rounded` counts events with a time finer than a ns. `untimed` counts events that were left out because of an
    impossible time or length. `unmeasured` counts slices with a missing or negative length, which is read as 0 ns.
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
    """The slices of a chunk. `columns` has indexes into the other fields, which are in order of first occurrence."""

    columns: Columns
    names: tuple[Loose, ...]
    categories: tuple[str | None, ...]
    args: tuple[bytes, ...]


@dataclass(frozen=True)
class Digest:
    """The parsed content of a chunk. Columns hold indexes into `threads`, `counter_names` and the fields of `slices`,
    which are in order of first occurrence.
    """

    slices: Slices | None
    memory: tuple[Ints, ...]
    """One array per field of MEMORY_FIELDS, ABSENT where an event lacks the field; empty without memory events."""
    counters: tuple[tuple[int, int, float], ...]
    """Number in `counter_names`, time, value."""
    threads: tuple[tuple[Loose, Loose], ...]
    counter_names: tuple[tuple[str, str], ...]
    labels: dict[tuple[Loose, Loose, str], str]
    counts: Counts


def digest(chunk: Chunk, opened: Opened | None = None) -> Digest:
    """Return a chunk's content. NeedsHistoryError if `opened`, slices left open earlier, is needed and missing."""
    return _Digesting(chunk, opened).run()


class _Digesting:
    def __init__(self, chunk: Chunk, opened: Opened | None) -> None:
        self._chunk, self._opened = chunk, opened
        self._counts = Counts()
        self._threads, self._counter_names = Numbers(), Numbers()
        self._counters: list[tuple[int, int, float]] = []
        self._labels: dict[tuple[Loose, Loose, str], str] = {}

    def run(self) -> Digest:
        slices, indices, memory = self._sort()
        return Digest(
            self._read_slices(slices, indices) if slices else None,
            self._read_memory(memory) if memory else (),
            tuple(self._counters),
            tuple(self._threads),
            tuple(self._counter_names),
            self._labels,
            self._counts,
        )

    def _sort(self) -> tuple[Sequence[Event], Sequence[int], Sequence[int]]:
        """Return the slices, their indexes in the chunk (-1 if made of two events), and the memory events' indexes."""
        events = self._chunk.events
        phases = [event.ph for event in events]
        if set(phases) == {"X"}:
            return events, range(len(events)), ()
        chosen = [phase == "X" for phase in phases]
        memory: list[int] = []
        made: dict[int, Event] = {}
        for at in [at for at, phase in enumerate(phases) if phase != "X"]:
            if phases[at] in _FLOWS:
                self._counts.flows += 1
            elif phases[at] not in _INSTANTS:
                slice_ = self._read_other(events[at])
                chosen[at] = slice_ is not None
                made |= {} if slice_ is None else {at: slice_}
            elif events[at].name == "[memory]":
                memory.append(at)
            else:
                chosen[at] = True
        indices = list(compress(range(len(events)), chosen))
        if not made:
            return list(compress(events, chosen)), indices, memory
        slices = [made.get(at) or events[at] for at in indices]
        return slices, [-1 if at in made else at for at in indices], memory

    def _read_other(self, event: Event) -> Event | None:
        """Read an event that is not a complete slice. Return the slice that the event ends, if any."""
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
        """Return the slice that an end event completes; None without a begin event, or without a begin or end time."""
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
        for key, value in _decode_args(event).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                number = self._counter_names[(str(event.pid), f"{event.name} {key}")]
                self._counters.append((number, time_ns, value))

    def _read_slices(self, events: Sequence[Event], indices: Sequence[int]) -> Slices:
        rounded = np.zeros(len(events), bool)
        start_ns, thread = self._read_places(events, indices, rounded)
        duration_ns = self._read_lengths(events, indices, rounded)
        self._counts.rounded += int(rounded.sum())
        start_ns[duration_ns == NO_TIME] = NO_TIME
        names, categories = Numbers(), Numbers()
        name, category = names.number(event.name for event in events), categories.number(event.cat for event in events)
        linked = np.array([entry not in _UNLINKED for entry in categories], bool)[category]
        args = read_call_arguments([event.args for event in events], linked)
        times = start_ns, np.maximum(duration_ns, 0)
        columns = Columns(*times, name, category, thread, args.number, args.correlation, args.external, args.sequence)
        return Slices(self._keep(columns, tuple(categories)), tuple(names), tuple(categories), args.texts)

    def _read_places(self, events: Sequence[Event], indices: Sequence[int], rounded: Mask) -> tuple[Ints, Ints]:
        threads = zip([event.pid for event in events], [event.tid for event in events], strict=True)
        times_ns = _convert([event.ts for event in events], indices, (self._chunk, "ts"), rounded)
        return times_ns, self._threads.number(threads)

    def _read_lengths(self, events: Sequence[Event], indices: Sequence[int], rounded: Mask) -> Ints:
        lengths = [event.dur for event in events]
        if not set(map(type, lengths)) <= {int, float}:
            self._counts.unmeasured += sum(event.dur is None and event.ph == "X" for event in events)
            lengths = [length or 0 for length in lengths]
        duration_ns = _convert(lengths, indices, (self._chunk, "dur"), rounded)
        self._counts.unmeasured += int(((duration_ns < 0) & (duration_ns != NO_TIME)).sum())
        return duration_ns

    def _keep(self, columns: Columns, categories: tuple[str | None, ...]) -> Columns:
        """Return the slices without the profiler's own and without those that have no time, and count these."""
        own = [isinstance(pid, str) and pid in _PROFILER_PROCESSES for pid, _ in self._threads]
        shown = ~np.array(own, bool)[columns.thread]
        if "Trace" in categories:
            shown &= columns.category != categories.index("Trace")
        timed = shown & (columns.start_ns != NO_TIME)
        told, kept = int(shown.sum()), int(timed.sum())
        self._counts.profiler_spans += len(columns) - told
        self._counts.untimed += told - kept
        if kept < len(columns):
            columns = columns.map(lambda values: values[timed])
        return columns

    def _read_memory(self, indices: Sequence[int]) -> tuple[Ints, ...]:
        events = [self._chunk.events[index] for index in indices]
        values = decode_each([event.args for event in events], MEMORIES)
        if None in values:
            known = [value is not None for value in values]
            self._counts.lost += known.count(False)
            events, indices = list(compress(events, known)), list(compress(indices, known))
        told = [value for value in values if value is not None]
        rounded = np.zeros(len(events), bool)
        time_ns, thread = self._read_places(events, indices, rounded)
        ids = (read_ids(list(map(attrgetter(name), told)), ABSENT) for name in MemoryArgs.__struct_fields__)
        self._counts.rounded += int(rounded.sum())
        timed = time_ns != NO_TIME
        self._counts.untimed += len(timed) - int(timed.sum())
        return tuple(found[timed] for found in (time_ns, thread, *ids))


def _convert(values: Sequence[Loose], indices: Sequence[int], origin: tuple[Chunk, str], rounded: Mask) -> Ints:
    """Return times in ns. `indices` are in the chunk; `origin` is the chunk and the name of the field."""
    try:
        return convert_numbers(values, rounded)
    except InexactTimesError:
        chunk, field = origin
        pick = attrgetter(field)
        # As the file spells them; what was computed here is spelled anew.
        texts = [
            pick(chunk.exact[at]) if at >= 0 else msgspec.Raw(str(value or 0).encode())
            for value, at in zip(values, indices, strict=True)
        ]
        return convert_texts(texts, rounded, absent="0" if field == "dur" else "")


def _decode_args(event: Event) -> dict[str, object]:
    try:
        value = msgspec.json.decode(event.args) if event.args is not NO_ARGS else {}
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}
