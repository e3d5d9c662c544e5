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
from collector.traces.kineto.digits import WORD_BYTES, Bytes, Words, read_long_digits, skip_blanks, view_words
from collector.traces.kineto.events import IDENTITY, UNREADABLE, Identity
from collector.traces.kineto.ids import NO_ID, read_ids
from collector.traces.kineto.intern import Numbers
from collector.traces.kineto.templates import Keys, find_templates

CORRELATION, EXTERNAL, EXTERNAL_OLD, SEQUENCE = "correlation", "External id", "external id", "Sequence number"
CALL_IDS = (CORRELATION, EXTERNAL, EXTERNAL_OLD, SEQUENCE)
CALL_NAMES = (
    *CALL_IDS,
    *("Ev Idx", "external ts", "Record function id", "Python id", "Python parent id"),
    *("Profiler Event Index", "Trace iteration"),
)
"""What is kept in columns of its own, or only numbers events within the file."""

_PATTERN = re.compile(
    rb'"(?:%s)"\s*+:\s*+(?:[^",}\]\0]++|"[^"\0]*+")?+(?:,\s*+)?+' % "|".join(map(re.escape, CALL_NAMES)).encode()
)
_NO_IDENTITY = Identity()
_QUOTE, _COLON, _COMMA, _MINUS, _OPEN, _CLOSE, _ESCAPE = b'":,-{}\\'
_PADDING = bytes(64)
"""No JSON holds this byte, so that it stands between the texts; behind them it spares a look at where they end."""


def _make_groups() -> npt.NDArray[np.int8]:
    """Return a table of the first bytes of keys: the place in `_GROUPS` and 1, 0 for a byte that begins none."""
    table = np.zeros(256, np.int8)
    for number, names in enumerate(_GROUPS, 1):
        table[ord(names[0][0])] = number
    return table


_GROUPS = tuple(
    tuple(name for name in CALL_NAMES if name[0] == first) for first in dict.fromkeys(n[0] for n in CALL_NAMES)
)
_GROUP_OF_BYTE = _make_groups()


_TEMPLATE_KEYS = Keys(CALL_NAMES, len(CALL_IDS))
_TAKEN = tuple(
    (place, CALL_IDS.index(name)) for place, name in ((0, CORRELATION), (1, EXTERNAL_OLD), (1, EXTERNAL), (2, SEQUENCE))
)
"""Which of the three ids is which key; of two keys the last one counts."""
_FEW = 256
"""So many are read before they are known to repeat."""


class _Part(NamedTuple):
    """Eight bytes of a key, as a number, and how far behind its first quote they stand."""

    offset: int
    word: np.uint64
    mask: np.uint64


class _Key(NamedTuple):
    """A key by its bytes, the last quote included, and its place in `CALL_NAMES`."""

    number: int
    length: int
    parts: tuple[_Part, ...]


def _make_key(name: str) -> _Key:
    text = name.encode() + b'"'
    offsets = [*range(0, len(text) - 8, 8), len(text) - 8] if len(text) > 8 else [0]
    parts = []
    for offset in offsets:
        piece = text[offset : offset + 8]
        mask = (1 << (8 * len(piece))) - 1
        parts.append(_Part(offset + 1, np.uint64(int.from_bytes(piece, "little")), np.uint64(mask)))
    return _Key(CALL_NAMES.index(name), len(text) + 1, tuple(parts))


_KEYS = tuple(tuple(map(_make_key, names)) for names in _GROUPS)


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
    if len(raws) < _FEW:
        return _read_all(raws, linked)
    found = find_templates(raws, _TEMPLATE_KEYS)
    different = _read_all(found.texts, np.ones(len(found.texts), bool))
    ids = np.stack([different.correlation, different.external, different.sequence])[:, found.number]
    for place, key in _TAKEN:
        ids[place] = np.where(found.told[key], found.values[key], ids[place])
    return CallArguments(different.number[found.number], different.texts, *_hide(ids, linked))


def _read_all(raws: Sequence[bytes], linked: Mask) -> CallArguments:
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
    words = view_words(text)
    quotes = np.flatnonzero(text == _QUOTE)
    group = _GROUP_OF_BYTE[text[quotes + 1]]
    quotes, group = quotes[group > 0], group[group > 0]
    starts, behind, which = [], [], []
    for number, keys in enumerate(_KEYS, 1):
        alike = quotes[group == number]
        for key in keys:
            mine = alike
            for part in key.parts:
                mine = mine[(words[mine + part.offset] & part.mask) == part.word]
            starts.append(mine)
            behind.append(mine + key.length)
            which.append(np.full(len(mine), key.number, np.int64))
    start, key_of = np.concatenate(starts), np.concatenate(which)
    value, end, plain = _read_integers(text, words, np.concatenate(behind))
    row = np.searchsorted(ends, start)
    odd = np.zeros(len(ends), bool)
    odd[row[~plain]] = True
    for number in range(len(CALL_IDS)):
        mine = row[key_of == number]
        odd[mine[1:][mine[1:] == mine[:-1]]] = True
    return _Found(row, np.where(key_of < len(CALL_IDS), key_of, -1), value, start, end), odd


def _read_integers(text: Bytes, words: Words, at: Ints) -> tuple[Ints, Ints, Mask]:
    """Read a colon and an integer at each place, up to what follows the comma. Say where they are not there."""
    at = skip_blanks(text, at)
    plain = text[at] == _COLON
    at = skip_blanks(text, at + 1)
    below = text[at] == _MINUS
    at = at + below
    value, count = read_long_digits(words, at)
    plain &= (count > 0) & (count < 2 * WORD_BYTES)
    at = skip_blanks(text, at + count)
    last = text[at]
    follows = last == _COMMA
    plain &= follows | (last == _CLOSE)
    return np.where(below, -value, value), np.where(follows, skip_blanks(text, at + follows), at), plain


def _find_unusual(joined: bytes, text: Bytes, ends: Ints) -> Mask:
    """Return which rows are no object, hold another object, or an escape, by which a key may be spelled otherwise."""
    starts = np.append(0, ends[:-1] + 1)
    filled = ends > starts
    odd: Mask = filled & (text[starts] != _OPEN)
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
    ids = np.full((len(CALL_IDS), rows), NO_ID, np.int64)
    told = np.zeros(rows, bool)
    for number, name in enumerate(CALL_IDS):
        mine = found.which == number
        ids[number, found.row[mine]] = found.value[mine]
        if name == EXTERNAL:
            told[found.row[mine]] = True
    at = {name: number for number, name in enumerate(CALL_IDS)}
    external = np.where(told, ids[at[EXTERNAL]], ids[at[EXTERNAL_OLD]])
    return np.stack([ids[at[CORRELATION]], external, ids[at[SEQUENCE]]])


def _hide(ids: npt.NDArray[np.int64], linked: Mask) -> npt.NDArray[np.int64]:
    return ids if linked.all() else np.where(linked, ids, NO_ID)


def _cut_out(text: Bytes, ends: Ints, found: _Found, odd: Ints) -> tuple[Bytes, Ints]:
    """Return the texts without what was found and without the odd rows, and where each begins; the last one is the end."""
    starts = np.append(0, ends[:-1] + 1)
    rows, first, last = np.append(found.row, odd), np.append(found.start, starts[odd]), np.append(found.end, ends[odd])
    edges = np.empty(2 * len(first) + 2, np.int64)
    # What is cut out does not overlap, so that begins and ends can be sorted apart.
    edges[0], edges[1:-1:2], edges[2:-1:2], edges[-1] = 0, np.sort(first), np.sort(last), int(ends[-1]) + 1
    is_kept = np.arange(len(edges) - 1) % 2 == 0
    kept = text[: edges[-1]][np.repeat(is_kept, np.diff(edges))]
    taken = np.bincount(rows, weights=last - first, minlength=len(ends)).astype(np.int64)
    return kept, np.append(0, ends + 1 - np.cumsum(taken))


def _number(kept: Bytes, offsets: Ints) -> tuple[tuple[bytes, ...], Ints]:
    """Number the texts in the order in which they come first; a byte stands behind each."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(kept)]
    numbered = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers).dictionary_encode()
    texts = tuple(entry[:-1] for entry in numbered.dictionary.to_pylist())
    return texts, np.frombuffer(numbered.indices.buffers()[1], np.int32, len(offsets) - 1).astype(np.int64)


def _join(
    raws: Sequence[bytes], linked: Mask, ids: npt.NDArray[np.int64], found: tuple[list[bytes], Ints]
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


def _read_singly(raws: Sequence[bytes], linked: Mask) -> CallArguments:
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


def _read_identity(raw: bytes) -> Identity:
    try:
        return IDENTITY.decode(raw)
    except UNREADABLE:
        return _NO_IDENTITY
