"""The events of a file on disk, until the ends of all slices are known; then the text of a Kineto trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from collector.traces.kineto.decode.clock import MOST_NS
from collector.traces.kineto.scratch import Scratch
from collector.traces.pftrace.pairing import BEGIN, PLAIN, Rows, pair_slices
from collector.traces.pftrace.state import Id, Track, Tracks, quote

_WRITTEN_BYTES = 1 << 20
_ROWS, _LONGEST_BITS = 1 << 13, 24
_SLICE, _LOST = b'{"ph":"X"', b'{"ph":"?"'
_COLUMNS = ("length", "time", "track", "kind", "sequence")


def spell_us(time_ns: int) -> bytes:
    """Return a time as decimal microseconds."""
    return b"%s%d.%03d" % (b"-" if time_ns < 0 else b"", abs(time_ns) // 1000, abs(time_ns) % 1000)


@dataclass
class Spool:
    """Events in the order of the file. `size_bytes` is that of the text, as far as it is known.

    Times are written relative to `base_ns`, the first of them.
    """

    scratch: Scratch
    size_bytes: int = 0
    base_ns: int | None = None
    _texts: list[bytes] = field(default_factory=list)
    _rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    _waiting_bytes: int = 0

    def __post_init__(self) -> None:
        self._file = self.scratch.open()
        self._columns = [self.scratch.column() for _ in _COLUMNS]

    def spell_time(self, time_ns: int | None) -> bytes:
        if time_ns is None:
            return b"null"
        if self.base_ns is None and abs(time_ns) <= MOST_NS:
            self.base_ns = time_ns
        return spell_us(time_ns - (self.base_ns or 0))

    def add(self, text: bytes, track: int, time_ns: int | None = None, kind: int = PLAIN, sequence: int = 0) -> None:
        """Add an event without its last brace: a slice from its begin, the end of one (without text), or another."""
        time_ns = max(-MOST_NS, min(time_ns or 0, MOST_NS))
        self._rows.append((len(text), time_ns, track, kind, sequence))
        self._texts.append(text)
        self._waiting_bytes += len(text)
        self.size_bytes += len(text)
        if self._waiting_bytes > _WRITTEN_BYTES or len(self._rows) > _WRITTEN_BYTES // 32:
            self._flush()

    def _flush(self) -> None:
        data = memoryview(b"".join(self._texts))
        while data:
            data = data[self._file.write(data) :]
        rows = np.array(self._rows, np.int64).reshape(-1, len(_COLUMNS))
        for column, values in zip(self._columns, rows.T, strict=True):
            column.append(values)
        self._texts, self._rows, self._waiting_bytes = [], [], 0

    def close(self) -> None:
        self._file.close()

    def read(self, tracks: Tracks) -> Iterator[bytes]:
        """Yield the names of processes and threads, then the events, each with its length and its place."""
        self._flush()
        length, time, track, kind, sequence = (column.finish() for column in self._columns)
        partner = pair_slices(Rows(time, track, kind, sequence), self.scratch)
        places = [spell_place(tracks.locate(entry)) for entry in tracks.listed]
        lead = b""
        for entry, place in zip(tracks.listed, places, strict=True):
            for text in _name(entry, place):
                yield lead + text
                lead = b",\n"
        at = 0
        for block in self.scratch.blocks(len(length), _ROWS):
            edges = np.flatnonzero(np.diff(np.cumsum(length[block]) >> _LONGEST_BITS)) + 1 + block.start
            for rows in np.split(np.arange(block.start, block.stop), edges):
                data = os.pread(self._file.fileno(), int(length[rows].sum()), at)
                at += len(data)
                other = partner[rows]
                duration = np.where(other < 0, -1, np.abs(time[other] - time[rows]))
                numbers = (length[rows], kind[rows], duration, track[rows])
                for text in _finish(data, zip(*(values.tolist() for values in numbers), strict=True), places):
                    yield lead + text
                    lead = b",\n"


def spell_place(place: tuple[Id, Id]) -> bytes:
    """Return process and thread as the end of an event."""
    return b',"pid":%s,"tid":%s}' % (msgspec.json.encode(place[0]), msgspec.json.encode(place[1]))


def _name(track: Track, place: bytes) -> Iterator[bytes]:
    for kind, name in ((b"process", track.process_name), (b"thread", track.thread_name)):
        if name:
            yield b'{"ph":"M","name":"%s_name","args":{"name":%s}%s' % (kind, quote(name), place)


def _finish(data: bytes, rows: Iterable[tuple[int, int, int, int]], places: list[bytes]) -> Iterator[bytes]:
    """Yield whole events. A slice without its other half becomes an event of no kind, which the reader counts."""
    at = 0
    for length, kind, duration_ns, track in rows:
        text = data[at : at + length]
        at += length
        if kind == PLAIN:
            yield text + places[track]
        elif duration_ns < 0 and kind == BEGIN:
            yield _LOST + text[len(_SLICE) :] + places[track]
        elif kind == BEGIN:
            yield b'%s,"dur":%s%s' % (text, spell_us(duration_ns), places[track])
        elif duration_ns < 0:
            yield _LOST + places[track]
