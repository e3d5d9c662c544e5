"""What packets of a file define for later ones: names by number, defaults, tracks and clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from collector.traces.pftrace.wire import WireError, read_fields, to_signed

Id = int | str
MOST_DEFINED_BYTES = 256 << 20
"""The size of all names, tracks and sequences that are in use at a time."""
_ENTRY_BYTES = 300
_LONGEST_NAME, _LONGEST_THREAD = 1 << 16, 1 << 8
_BOOT_TIME, _REAL_TIME, _OWN_CLOCKS, _GLOBAL_CLOCKS = 6, 1, 64, 128
_MOST_CLOCKS = 1 << 10
_UNITS = {1: b"ns", 2: b"count", 3: b"bytes"}
# Tags: eight times the number of a field, plus its type.
_IID, _NAME, _DEMANGLED, _CATEGORY, _COMPUTE = 8, 18, 26, 32, 2
_DESCRIPTOR, _GPU, _SPEC, _SPEC_ID = 18, 24, 10, 8
_DEFAULT_CLOCK, _DEFAULT_EVENT, _DEFAULT_TRACK = 464, 90, 88
_CLOCK, _CLOCK_ID, _VALUE, _INCREMENTAL, _UNIT_NS = 10, 8, 16, 24, 32
_UUID, _PARENT, _TRACK_NAMES, _PROCESS, _THREAD, _COUNTER = 8, 40, (18, 82, 106), 26, 34, 66
_PID, _TID, _THREAD_NAME, _PROCESS_NAME = 8, 16, 42, 50
_UNIT, _UNIT_NAME, _FACTOR, _IS_INCREMENTAL = 24, 50, 32, 40


def quote(text: bytes) -> bytes:
    """Return a text as JSON. A very long text is cut."""
    return msgspec.json.encode(text[:_LONGEST_NAME].decode("utf-8", "replace"))


def read_text(text: bytes) -> str:
    return text[:_LONGEST_NAME].decode("utf-8", "replace")


@dataclass
class Budget:
    """The room that is left for what a file defines. Raises WireError where it ends."""

    left_bytes: int = MOST_DEFINED_BYTES

    def take(self, size: int = _ENTRY_BYTES) -> int:
        self.left_bytes -= size
        if self.left_bytes < 0:
            raise WireError(f"its names and tracks take more than {MOST_DEFINED_BYTES >> 20} MiB")
        return size


@dataclass(frozen=True)
class Stage:
    """A kind of work of a GPU, or one of its queues."""

    name: str
    is_compute: bool


def _read_stage(parts: dict[int, Any]) -> Stage:
    return Stage(read_text(parts.get(_NAME, b"")), parts.get(_CATEGORY) == _COMPUTE)


def _read_counters(parts: dict[int, Any]) -> tuple[int | None, dict[int, bytes]]:
    """Return the GPU of a counter descriptor, and the name of each counter as JSON."""
    fields = read_fields(parts.get(_DESCRIPTOR, b""))
    specs = [dict(read_fields(content)) for key, content in fields if key == _SPEC]
    return parts.get(_GPU), {spec.get(_SPEC_ID, 0): quote(spec.get(_NAME, b"")) for spec in specs}


NAMES, CATEGORIES, KEYS, TEXTS, STAGES, COUNTERS, KERNELS, ARGUMENTS = 18, 10, 26, 234, 194, 378, 8002, 8010
"""The interned kinds, by their tags in InternedData."""
_INTERNED: dict[int, Callable[[dict[int, Any]], Any]] = {
    NAMES: lambda parts: quote(parts.get(_NAME, b"")),
    CATEGORIES: lambda parts: read_text(parts.get(_NAME, b"")),
    KEYS: lambda parts: quote(parts.get(_NAME, b"")),
    TEXTS: lambda parts: quote(parts.get(_NAME, b"")),
    STAGES: _read_stage,
    COUNTERS: _read_counters,
    KERNELS: lambda parts: quote(parts.get(_DEMANGLED) or parts.get(_NAME, b"")),
    ARGUMENTS: lambda parts: read_text(parts.get(_NAME, b"")),
}


@dataclass
class Clock:
    """A clock of a writer: its value and the time of the file (ns) at the last snapshot."""

    value_ns: int
    time_ns: int
    unit_ns: int
    is_incremental: bool

    def read(self, value: int) -> int:
        time_ns = self.time_ns + value * self.unit_ns
        if not self.is_incremental:
            return time_ns - self.value_ns
        self.time_ns = time_ns
        return time_ns


@dataclass
class Sequence:
    """The state of one writer of packets."""

    number: int
    budget: Budget
    interned: dict[int, dict[int, Any]] = field(default_factory=dict)
    track: int | None = None
    clock: int = _BOOT_TIME
    clocks: dict[int, Clock] = field(default_factory=dict)
    spelled: dict[bytes, bytes] = field(default_factory=dict)
    """Annotations and their JSON, as these often repeat."""
    _used_bytes: int = 0

    def clear(self) -> None:
        self.budget.left_bytes += self._used_bytes
        self._used_bytes, self.interned, self.track, self.clock = 0, {}, None, _BOOT_TIME
        self.spelled.clear()

    def intern(self, data: bytes) -> None:
        self.spelled.clear()
        for key, content in read_fields(data):
            if (read := _INTERNED.get(key)) is not None:
                self._used_bytes += self.budget.take(_ENTRY_BYTES + len(content))
                parts = dict(read_fields(content))
                self.interned.setdefault(key, {})[parts.get(_IID, 0)] = read(parts)

    def find(self, kind: int, number: int, absent: Any) -> Any:
        return self.interned.get(kind, {}).get(number, absent)

    def set_defaults(self, data: bytes) -> None:
        parts = dict(read_fields(data))
        self.clock = parts.get(_DEFAULT_CLOCK, _BOOT_TIME)
        self.track = dict(read_fields(parts.get(_DEFAULT_EVENT, b""))).get(_DEFAULT_TRACK)


class Clocks:
    """The clocks of a file. `wall_ns` is the offset from the times of the file to Unix time, None if it is not known."""

    def __init__(self) -> None:
        self.wall_ns: int | None = None
        self._offsets_ns: dict[int, int] = {}
        self._others: dict[int, Clock] = {}

    def add(self, data: bytes, sequence: Sequence) -> None:
        """Take the first snapshot of the system's clocks, and each of a writer's own."""
        found = [dict(read_fields(content)) for key, content in read_fields(data) if key == _CLOCK]
        values = {parts.get(_CLOCK_ID, 0): parts.get(_VALUE, 0) for parts in found}
        system = {number: value for number, value in values.items() if number < _OWN_CLOCKS}
        if not system:
            return
        known = next((number for number in system if number in self._offsets_ns), None)
        first = _BOOT_TIME if _BOOT_TIME in system else next(iter(system))
        time_ns = system[first] if known is None else system[known] + self._offsets_ns[known]
        for number, value in system.items():
            self._offsets_ns.setdefault(number, time_ns - value)
        if self.wall_ns is None and _REAL_TIME in system:
            self.wall_ns = system[_REAL_TIME] - time_ns
        for parts in found:
            number, unit_ns = parts.get(_CLOCK_ID, 0), parts.get(_UNIT_NS) or 1
            clocks = self._find_clocks(number, sequence)
            if number >= _OWN_CLOCKS and len(clocks) < _MOST_CLOCKS:
                is_incremental = bool(parts.get(_INCREMENTAL))
                clocks[number] = Clock(parts.get(_VALUE, 0) * unit_ns, time_ns, unit_ns, is_incremental)

    def read(self, sequence: Sequence, number: int, value: int) -> int:
        """Return the time of the file, in ns, at which a clock shows a value."""
        if number < _OWN_CLOCKS:
            return value + self._offsets_ns.get(number, 0)
        clock = self._find_clocks(number, sequence).get(number)
        return value if clock is None else clock.read(value)

    def _find_clocks(self, number: int, sequence: Sequence) -> dict[int, Clock]:
        return sequence.clocks if number < _GLOBAL_CLOCKS else self._others


@dataclass(slots=True)
class Track:
    """A row of a timeline. `process` and `thread` are None where the row has none of its own."""

    number: int
    parent: int = 0
    name: bytes = b""
    process: Id | None = None
    thread: Id | None = None
    process_name: bytes = b""
    thread_name: bytes = b""
    unit: bytes = b'"value"'
    factor: int = 1
    is_incremental: bool = False
    _value: float = 0

    def add(self, value: float) -> float:
        """Return the value of a counter after a packet that has a value."""
        value *= self.factor
        self._value = self._value + value if self.is_incremental else value
        return self._value


class Tracks:
    """The tracks of a file by their identity; `listed` has them by number."""

    def __init__(self, budget: Budget) -> None:
        self.listed: list[Track] = []
        self._budget = budget
        self._by_key: dict[Any, Track] = {}

    def find(self, key: Any) -> Track:
        """Return the track of a uuid or another key, a new one if there is none."""
        track = self._by_key.get(key)
        if track is None:
            self._budget.take()
            track = self._by_key[key] = Track(len(self.listed))
            self.listed.append(track)
        return track

    def place(self, process: Id, thread: Id) -> Track:
        track = self.find((process, thread))
        track.process, track.thread = process, thread
        return track

    def define(self, data: bytes) -> None:
        parts = dict(read_fields(data))
        track = self.find(parts.get(_UUID, 0))
        track.parent = parts.get(_PARENT, track.parent)
        track.name = self._keep(next((parts[key] for key in _TRACK_NAMES if key in parts), track.name))
        if _PROCESS in parts:
            process = dict(read_fields(parts[_PROCESS]))
            track.process = to_signed(process.get(_PID, 0))
            track.process_name = self._keep(process.get(_PROCESS_NAME) or track.name)
        if _THREAD in parts:
            thread = dict(read_fields(parts[_THREAD]))
            track.process, track.thread = to_signed(thread.get(_PID, 0)), to_signed(thread.get(_TID, 0))
            track.thread_name = self._keep(thread.get(_THREAD_NAME) or track.name)
        if _COUNTER in parts:
            counter = dict(read_fields(parts[_COUNTER]))
            unit = counter.get(_UNIT_NAME) or _UNITS.get(counter.get(_UNIT, 0), b"value")
            track.unit, track.factor = quote(self._keep(unit)), to_signed(counter.get(_FACTOR, 1))
            track.is_incremental = bool(counter.get(_IS_INCREMENTAL))

    def _keep(self, text: bytes) -> bytes:
        text = text[:_LONGEST_NAME]
        self._budget.take(len(text))
        return text

    def locate(self, track: Track) -> tuple[Id, Id]:
        """Return process and thread of a track: its own, or those of the nearest track above it."""
        above, seen = track, {track.number}
        while above.process is None and above.parent in self._by_key:
            above = self._by_key[above.parent]
            if above.number in seen:
                break
            seen.add(above.number)
        own = above.thread if above.thread is not None else read_text(track.name[:_LONGEST_THREAD])
        return above.process or 0, own or 0
