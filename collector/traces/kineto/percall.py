"""What differs from call to call in the arguments of events: read, and taken out of their texts.

Without it the arguments of a million events are a few thousand different texts, and each of those is parsed once. The
texts of a whole chunk are searched at once, as an array of bytes; an event whose arguments are not as plain as profilers
write them (an id that is no integer, an object within the object, an escape) is read by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.traces.kineto.clock import Ints, Mask
from collector.traces.kineto.events import IDENTITY, UNREADABLE, Identity
from collector.traces.kineto.ids import NO_ID, read_ids
from collector.traces.kineto.intern import Numbers

CORRELATION, EXTERNAL, EXTERNAL_OLD, SEQUENCE = "correlation", "External id", "external id", "Sequence number"
_IDS = (CORRELATION, EXTERNAL, EXTERNAL_OLD, SEQUENCE)
_NAMES = (
    *_IDS,
    *("Ev Idx", "external ts", "Record function id", "Python id", "Python parent id"),
    *("Profiler Event Index", "Trace iteration"),
)
"""What is kept in columns of its own, or only numbers events within the file."""

_PATTERN = re.compile(
    rb'"(?:%s)"\s*+:\s*+(?:[^",}\]\0]++|"[^"\0]*+")?+(?:,\s*+)?+' % "|".join(map(re.escape, _NAMES)).encode()
)
_NO_IDENTITY = Identity()
_QUOTE, _COLON, _COMMA, _MINUS, _ZERO, _OPEN, _CLOSE, _ESCAPE = b'":,-0{}\\'
_WORD = np.dtype("<u8")
_MOST_DIGITS = 18
_PADDING = bytes(64)
"""No JSON holds this byte, so that it stands between the texts; behind them it spares a look at where they end."""

Bytes = npt.NDArray[np.uint8]


def _make_table(chosen: bytes) -> Mask:
    table = np.zeros(256, bool)
    table[list(chosen)] = True
    return table


_FIRST = _make_table(bytes({name.encode()[0] for name in _NAMES}))
_BLANK = _make_table(b" \t\r\n")


class _Part(NamedTuple):
    """Eight bytes of a key, as a number, and how far behind its first quote they stand."""

    offset: int
    word: int
    mask: int


class _Key(NamedTuple):
    """A key by its bytes: the first eight, and the others that tell it from keys that begin alike."""

    name: str
    length: int
    first: _Part
    rest: tuple[_Part, ...]


def _make_key(name: str) -> _Key:
    text = name.encode() + b'"'
    offsets = [0, *range(8, len(text) - 8, 8), *([len(text) - 8] if len(text) > 8 else [])]
    parts = []
    for offset in offsets:
        piece = text[offset : offset + 8]
        mask = (1 << (8 * len(piece))) - 1
        parts.append(_Part(offset + 1, int.from_bytes(piece, "little"), mask))
    return _Key(name, len(text) + 1, parts[0], tuple(parts[1:]))


_KEYS = tuple(map(_make_key, _NAMES))


@dataclass(frozen=True)
class CallArguments:
    """The arguments of events: `number` is the place in `texts`, which are in the order of the events; ids are -1 for none."""

    number: Ints
    texts: tuple[bytes, ...]
    correlation: Ints
    external: Ints
    sequence: Ints


@dataclass(frozen=True)
class _Found:
    """Keys with an integer behind them: the row, which of the ids it is (-1 for none of them), the value, and from where to where."""

    row: Ints
    which: Ints
    value: Ints
    start: Ints
    end: Ints


def read_call_arguments(raws: Sequence[msgspec.Raw], linked: Mask) -> CallArguments:
    """Read the arguments of events. The ids of those that are not linked are not looked at."""
    joined = b"\0".join(raws) + _PADDING
    text = np.frombuffer(joined, np.uint8)
    ends = np.flatnonzero(text[: len(text) - len(_PADDING) + 1] == 0)
    if len(ends) != len(raws) or not len(raws):
        return _read_singly(raws, linked)
    found, odd = _find_values(text, ends)
    odd |= _find_unusual(joined, text, ends)
    found = _pick(found, ~odd[found.row])
    ids = _spread(found, len(raws))
    rows = np.flatnonzero(odd)
    kept, offsets = _cut_out(text, ends, found, rows)
    if len(rows):
        pieces = kept.tobytes().split(b"\0")
        return _join(raws, linked, ids, (pieces, rows))
    texts, number = _number(kept, offsets)
    return CallArguments(number, texts, *_hide(ids, linked))


def _find_values(text: Bytes, ends: Ints) -> tuple[_Found, Mask]:
    """Find the keys, and the rows that have one with something other than an integer behind it, or one twice."""
    words: npt.NDArray[np.uint64] = np.ndarray(len(text) - 7, _WORD, text, strides=(1,))
    quotes = np.flatnonzero(text == _QUOTE)
    quotes = quotes[_FIRST[text[quotes + 1]]]
    heads = words[quotes + 1]
    starts, behind, which = [], [], []
    for number, key in enumerate(_KEYS):
        mine = quotes[(heads & np.uint64(key.first.mask)) == np.uint64(key.first.word)]
        for part in key.rest:
            mine = mine[words[mine + part.offset] == np.uint64(part.word)]
        if len(mine):
            starts.append(mine)
            behind.append(mine + key.length)
            which.append(np.full(len(mine), number, np.int64))
    if not starts:
        nothing = np.empty(0, np.int64)
        return _Found(nothing, nothing, nothing, nothing, nothing), np.zeros(len(ends), bool)
    start, key_of = np.concatenate(starts), np.concatenate(which)
    value, end, plain = _read_integers(text, np.concatenate(behind))
    row = np.searchsorted(ends, start)
    odd = np.zeros(len(ends), bool)
    odd[row[~plain]] = True
    for number in range(len(_IDS)):
        mine = row[key_of == number]
        odd[mine[1:][mine[1:] == mine[:-1]]] = True
    return _Found(row, np.where(key_of < len(_IDS), key_of, -1), value, start, end), odd


def _read_integers(text: Bytes, at: Ints) -> tuple[Ints, Ints, Mask]:
    """Read a colon and an integer at each place, up to what follows the comma. Say where they are not there."""
    at = _skip_blanks(text, at)
    plain = text[at] == _COLON
    at = _skip_blanks(text, at + 1)
    below = text[at] == _MINUS
    at = at + below
    begin, value = at, np.zeros(len(at), np.int64)
    for _ in range(_MOST_DIGITS):
        digit = text[at] - np.uint8(_ZERO)
        is_digit = digit < 10
        if not is_digit.any():
            break
        value = np.where(is_digit, value * 10 + digit, value)
        at = at + is_digit
    plain &= at > begin
    at = _skip_blanks(text, at)
    follows = text[at] == _COMMA
    plain &= follows | (text[at] == _CLOSE)
    return np.where(below, -value, value), np.where(follows, _skip_blanks(text, at + follows), at), plain


def _skip_blanks(text: Bytes, at: Ints) -> Ints:
    while (blank := _BLANK[text[at]]).any():
        at = at + blank
    return at


def _find_unusual(joined: bytes, text: Bytes, ends: Ints) -> Mask:
    """Return which rows are no object, hold another object, or an escape, by which a key may be spelled otherwise."""
    starts = np.append(0, ends[:-1] + 1)
    filled = ends > starts
    odd = filled & (text[starts] != _OPEN)
    if joined.count(b"{") != int(filled.sum()):
        opened = np.searchsorted(ends, np.flatnonzero(text == _OPEN))
        odd |= np.bincount(opened, minlength=len(ends)) > 1
    if b"\\" in joined:
        odd[np.searchsorted(ends, np.flatnonzero(text == _ESCAPE))] = True
    return odd


def _pick(found: _Found, mask: Mask) -> _Found:
    if mask.all():
        return found
    return _Found(found.row[mask], found.which[mask], found.value[mask], found.start[mask], found.end[mask])


def _spread(found: _Found, rows: int) -> npt.NDArray[np.int64]:
    """Return correlation, external id and sequence number of each row."""
    ids = np.full((len(_IDS), rows), NO_ID, np.int64)
    told = np.zeros(rows, bool)
    for number, name in enumerate(_IDS):
        mine = found.which == number
        ids[number, found.row[mine]] = found.value[mine]
        if name == EXTERNAL:
            told[found.row[mine]] = True
    at = {name: number for number, name in enumerate(_IDS)}
    external = np.where(told, ids[at[EXTERNAL]], ids[at[EXTERNAL_OLD]])
    return np.stack([ids[at[CORRELATION]], external, ids[at[SEQUENCE]]])


def _hide(ids: npt.NDArray[np.int64], linked: Mask) -> npt.NDArray[np.int64]:
    return ids if linked.all() else np.where(linked, ids, NO_ID)


def _cut_out(text: Bytes, ends: Ints, found: _Found, odd: Ints) -> tuple[Bytes, Ints]:
    """Return the texts without what was found and without the odd rows, and where each begins; the last one is the end."""
    starts = np.append(0, ends[:-1] + 1)
    first, last = np.append(found.start, starts[odd]), np.append(found.end, ends[odd])
    filled = last > first
    first, last = first[filled], last[filled]
    edges = np.zeros(int(ends[-1]) + 2, np.int8)
    edges[first] = 1
    edges[last] -= 1
    kept = text[: int(ends[-1]) + 1][np.add.accumulate(edges, dtype=np.int8)[:-1] == 0]
    rows = np.append(found.row, odd)[filled]
    taken = np.bincount(rows, weights=last - first, minlength=len(ends)).astype(np.int64)
    return kept, np.append(0, ends + 1 - np.cumsum(taken))


def _number(kept: Bytes, offsets: Ints) -> tuple[tuple[bytes, ...], Ints]:
    """Number the texts in the order in which they come first; a byte stands behind each."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(kept)]
    numbered = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers).dictionary_encode()
    texts = tuple(entry[:-1] for entry in numbered.dictionary.to_pylist())
    return texts, np.asarray(numbered.indices).astype(np.int64)


def _join(
    raws: Sequence[msgspec.Raw], linked: Mask, ids: npt.NDArray[np.int64], found: tuple[list[bytes], Ints]
) -> CallArguments:
    """Put what was read in bulk and what is read row by row together."""
    pieces, rows = found
    for row in rows.tolist():
        pieces[row] = _PATTERN.sub(b"", bytes(raws[row]))
    entries = [_read_identity(raws[row]) for row in rows.tolist()]
    ids[:, rows] = _list_ids(entries)
    numbers = Numbers()
    number = np.array([numbers[piece] for piece in pieces[: len(raws)]], np.int64)
    return CallArguments(number, tuple(numbers), *_hide(ids, linked))


def _read_singly(raws: Sequence[msgspec.Raw], linked: Mask) -> CallArguments:
    numbers = Numbers()
    number = np.array([numbers[_PATTERN.sub(b"", bytes(raw))] for raw in raws], np.int64)
    ids = _list_ids([_read_identity(raw) for raw in raws])
    return CallArguments(number, tuple(numbers), *_hide(ids, linked))


def _list_ids(entries: Sequence[Identity]) -> npt.NDArray[np.int64]:
    return np.stack(
        [
            read_ids([entry.correlation for entry in entries]),
            read_ids([entry.external if entry.external is not None else entry.external_old for entry in entries]),
            read_ids([entry.sequence for entry in entries]),
        ]
    )


def _read_identity(raw: msgspec.Raw) -> Identity:
    try:
        return IDENTITY.decode(raw)
    except UNREADABLE:
        return _NO_IDENTITY
