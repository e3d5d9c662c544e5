"""Packets to events of a Kineto trace."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import msgspec

from collector.traces.pftrace.arguments import spell_arguments
from collector.traces.pftrace.gpu import NAMELESS, read_counters, read_work
from collector.traces.pftrace.naming import find_category, rename_arguments
from collector.traces.pftrace.pairing import BEGIN, END
from collector.traces.pftrace.spool import Spool, spell_us
from collector.traces.pftrace.state import CATEGORIES, NAMES, Budget, Clocks, Sequence, Track, Tracks, quote, read_text
from collector.traces.pftrace.wire import MOST_BYTES, Fields, WireError, read_fields, read_varint, to_double, to_signed

# Tags: eight times the number of a field, plus its type. First those of a packet.
PACKET = 10
_TIME, _CLOCK, _WRITER, _FLAGS, _CLEARED = 64, 464, 80, 104, 328
_INTERNED, _DEFAULTS, _SNAPSHOT, _TRACK = 98, 474, 50, 482
_EVENT, _GPU_WORK, _GPU_COUNTERS, _PACKED = 90, 426, 418, 402
_IS_CLEARED = 1
# Those of an event of a track, and of the older form inside of it.
_TYPE, _TRACK_UUID, _ANNOTATION, _LEGACY = 72, 88, 34, 50
_NAME_IID, _NAME, _CATEGORY_IID, _CATEGORY_IIDS, _CATEGORY = 80, 186, 24, 26, 178
_INTEGER, _DOUBLE = 240, 353
_FLOWS = {377: "s", 288: "s", 385: "f", 336: "f"}
_PHASE, _LENGTH_US, _LEGACY_NAME, _PROCESS, _THREAD = 16, 24, 8, 144, 152
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4


@dataclass(frozen=True)
class Place:
    """Where and when an event is, and who wrote it."""

    track: Track
    time_ns: int | None
    sequence: Sequence


class Converter:
    """Turns packets into events of a spool. Raises WireError for a damaged packet."""

    def __init__(self, spool: Spool) -> None:
        self._budget = Budget()
        self.tracks, self.clocks = Tracks(self._budget), Clocks()
        self._spool = spool
        self._sequences: dict[int, Sequence] = {}

    def add(self, packet: bytes, is_inner: bool = False) -> None:
        parts = dict(read_fields(packet))
        sequence = self._find_sequence(parts.get(_WRITER, 0))
        if parts.get(_FLAGS, 0) & _IS_CLEARED or parts.get(_CLEARED):
            sequence.clear()
        if _INTERNED in parts:
            sequence.intern(parts[_INTERNED])
        if _DEFAULTS in parts:
            sequence.set_defaults(parts[_DEFAULTS])
        if _SNAPSHOT in parts:
            self.clocks.add(parts[_SNAPSHOT], sequence)
        if _TRACK in parts:
            self.tracks.define(parts[_TRACK])
        time_ns = None
        if _TIME in parts:
            time_ns = self.clocks.read(sequence, parts.get(_CLOCK, sequence.clock), parts[_TIME])
        if _EVENT in parts:
            self._add_event(parts[_EVENT], time_ns, sequence)
        elif _GPU_WORK in parts:
            self._add_work(parts[_GPU_WORK], time_ns, sequence)
        elif _GPU_COUNTERS in parts:
            for device, name, value in read_counters(parts[_GPU_COUNTERS], sequence):
                self._count(name, b'"value"', value, Place(self.tracks.place(device, 0), time_ns, sequence))
        elif _PACKED in parts and not is_inner:
            for key, inner in read_fields(_unpack(parts[_PACKED])):
                if key == PACKET:
                    self.add(inner, True)

    def _find_sequence(self, number: int) -> Sequence:
        found = self._sequences.get(number)
        if found is None:
            self._budget.take()
            found = self._sequences[number] = Sequence(len(self._sequences), self._budget)
        return found

    def _add_event(self, data: bytes, time_ns: int | None, sequence: Sequence) -> None:
        fields = read_fields(data)
        parts = dict(fields)
        kind, uuid = parts.get(_TYPE, 0), parts.get(_TRACK_UUID, sequence.track)
        track = self.tracks.place(0, sequence.number) if uuid is None else self.tracks.find(uuid)
        place = Place(track, time_ns, sequence)
        if _LEGACY in parts and not kind:
            self._add_legacy(fields, dict(read_fields(parts[_LEGACY])), place)
        elif kind == _SLICE_BEGIN:
            self._add_half(self._spell("X", fields, place), place, BEGIN)
        elif kind == _SLICE_END:
            self._add_half(b"", place, END)
        elif kind == _COUNTER and (_INTEGER in parts or _DOUBLE in parts):
            value = to_signed(parts[_INTEGER]) if _INTEGER in parts else to_double(parts[_DOUBLE])
            self._count(quote(track.name), track.unit, track.add(value), place)
        else:
            self._spool.add(self._spell("i" if kind == _INSTANT else "?", fields, place), track.number)
        for key, number in fields:
            if (phase := _FLOWS.get(key)) is not None:
                text = self._write(phase, b'"flow"', ("flow", b""), time_ns)
                self._spool.add(b'%s,"id":%d' % (text, number), track.number)

    def _add_half(self, text: bytes, place: Place, kind: int) -> None:
        self._spool.add(text, place.track.number, place.time_ns, kind, place.sequence.number)

    def _add_legacy(self, fields: Fields, legacy: dict[int, Any], place: Place) -> None:
        """Add an event of the older form, which names its phase as Chrome's traces do."""
        if _PROCESS in legacy or _THREAD in legacy:
            old = zip((_PROCESS, _THREAD), self.tracks.locate(place.track), strict=True)
            process, thread = (to_signed(legacy[key]) if key in legacy else number for key, number in old)
            place = Place(self.tracks.place(process, thread), place.time_ns, place.sequence)
        fields = [(_NAME_IID, legacy[_LEGACY_NAME]), *fields] if _LEGACY_NAME in legacy else fields
        phase = chr(legacy.get(_PHASE, 0) & 127)
        if phase == "B":
            self._add_half(self._spell("X", fields, place), place, BEGIN)
        elif phase == "E":
            self._add_half(b"", place, END)
        else:
            known = "i" if phase in "IiR" else phase if phase.isalpha() else "?"
            text = self._spell(known, fields, place)
            if phase == "X":
                text += b',"dur":' + spell_us(1000 * to_signed(legacy.get(_LENGTH_US, 0)))
            self._spool.add(text, place.track.number)

    def _spell(self, phase: str, fields: Fields, place: Place) -> bytes:
        name, categories, annotations = NAMELESS, [], []
        for key, content in fields:
            if key == _ANNOTATION:
                annotations.append(content)
            elif key == _NAME_IID:
                name = place.sequence.find(NAMES, content, NAMELESS)
            elif key == _NAME:
                name = quote(content)
            elif key == _CATEGORY_IID:
                categories.append(place.sequence.find(CATEGORIES, content, ""))
            elif key == _CATEGORY_IIDS:
                categories += [place.sequence.find(CATEGORIES, number, "") for number in _read_packed(content)]
            elif key == _CATEGORY:
                categories.append(read_text(content))
        arguments = b",".join(spell_arguments(annotations, place.sequence))
        category = ",".join(categories) or find_category(name, arguments, place.track)
        return self._write(phase, name, rename_arguments(category, arguments), place.time_ns)

    def _write(self, phase: str, name: bytes, kind: tuple[str, bytes], time_ns: int | None) -> bytes:
        """Return an event without its end. `kind` is its category and its arguments; these and the name are JSON."""
        time, category = self._spool.spell_time(time_ns), msgspec.json.encode(kind[0])
        return b'{"ph":"%s","ts":%s,"name":%s,"cat":%s,"args":{%s}' % (phase.encode(), time, name, category, kind[1])

    def _count(self, name: bytes, unit: bytes, value: float, place: Place) -> None:
        text = self._write("C", name, ("", unit + b":" + msgspec.json.encode(value)), place.time_ns)
        self._spool.add(text, place.track.number)

    def _add_work(self, data: bytes, time_ns: int | None, sequence: Sequence) -> None:
        work = read_work(data, sequence)
        text = self._write("X", work.name, (work.category, work.arguments), time_ns)
        track = self.tracks.place(work.device, work.queue)
        self._spool.add(b'%s,"dur":%s' % (text, spell_us(work.length_ns)), track.number)


def _read_packed(data: bytes) -> list[int]:
    numbers, at = [], 0
    try:
        while at < len(data):
            number, at = read_varint(data, at)
            numbers.append(number)
    except IndexError:
        raise WireError("a list of numbers ends early") from None
    return numbers


def _unpack(data: bytes) -> bytes:
    engine = zlib.decompressobj()
    try:
        text = engine.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise WireError(f"its packed packets are damaged: {error}") from None
    if engine.unconsumed_tail:
        raise WireError(f"its packed packets unpack to more than {MOST_BYTES >> 20} MiB")
    return text
