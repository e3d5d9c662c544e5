"""Read the argument values that differ from call to call, and remove them from the arguments' texts.

Without these values, the arguments of a million events are a few thousand distinct texts, each parsed once.
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

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.decode.events import IDENTITIES, NO_ID, Identity, decode_each, read_ids
from collector.traces.kineto.decode.numbering import Numbers

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

WORD_BYTES = 8
TENS = 10 ** np.arange(WORD_BYTES + 1)
_ONE_BYTE, _ZERO_BEFORE = np.uint8(1), np.uint8(32)
_ONE, _ONES, _ZEROS = np.uint64(1), np.uint64(0x0101010101010101), np.uint64(0x3030303030303030)
_LOW_BITS, _HIGH_BITS = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)
_UP_FROM_TEN = np.uint64(0x7676767676767676)
_BYTE_BITS, _TOP_BYTE = np.uint64(3), np.uint64(56)
_ADDITIONS = tuple(
    (np.uint64(mask), np.uint64(factor), np.uint64(shift))
    for mask, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 2561, 8),
        (0x00FF00FF00FF00FF, 6553601, 16),
        (0x0000FFFF0000FFFF, 42949672960001, 32),
    )
)


def view_words(text: Bytes) -> Words:
    """Return one eight-byte word for each byte: the eight bytes that begin there."""
    words: Words = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))
    return words


def skip_blanks(text: Bytes, at: Ints) -> Ints:
    # Of the bytes up to a blank only blanks stand outside of strings; a zero, which becomes 255, ends the text.
    while (blank := (text[at] - _ONE_BYTE) < _ZERO_BEFORE).any():
        at = at + blank
    return at


def read_digits(words: Words) -> tuple[Ints, Ints]:
    """Read the leading digits of eight-byte words. Return the numbers, and their digit counts.

    All eight bytes are processed at once: non-digits get their highest bit set, digits are shifted to the end, and then
    neighbours are combined, first two, then four, then eight.
    """
    bits = words ^ _ZEROS
    other = (((bits & _LOW_BITS) + _UP_FROM_TEN) | bits) & _HIGH_BITS
    # Below the first of these bits there are eight for each byte before it, and seven more.
    below = (other & (~other + _ONE)) - _ONE
    count = ((below & _ONES) * _ONES) >> _TOP_BYTE
    count -= other != 0
    moved = bits << ((WORD_BYTES - count) << _BYTE_BITS)
    for mask, factor, shift in _ADDITIONS:
        moved = ((moved & mask) * factor) >> shift
    return moved.view(np.int64), count.view(np.int64)


def read_long_digits(words: Words, at: Ints) -> tuple[Ints, Ints]:
    """Read up to sixteen digits at each position. Return the numbers, and their digit counts."""
    value, count = read_digits(words[at])
    long = np.flatnonzero(count == WORD_BYTES)
    if len(long):
        more, digits = read_digits(words[at[long] + WORD_BYTES])
        value[long] = value[long] * TENS[digits] + more
        count[long] += digits
    return value, count


_LEAD = bytes(32)
"""Zero bytes around all texts save a bounds check. A zero byte also separates texts: no JSON holds it."""
_COLON, _COMMA, _MINUS, _ZERO, _OPEN, _CLOSE, _ESCAPE = b":,-0{}\\"
_HEADS = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
"""Masks for the first 0 to 8 bytes of a word."""
_BLANKS = np.uint64(0x2020202020202020)
_BLANK_LAST = np.uint32(33 << 24)
"""Four bytes are less than this if the last of them is a blank."""
_TAIL_BYTES = 4
_HASH_BITS = np.uint32(20)
_ENDS_NUMBER = np.zeros(256, bool)
_ENDS_NUMBER[list(b" \t\r\n,}")] = True


@dataclass(frozen=True)
class Templates:
    """JSON texts without their removed values: `texts` are the distinct texts (templates) in order of first occurrence.

    `number` is each event's template. `values` are the removed values by key and event; `told` marks the values that
    exist.
    """

    texts: list[bytes]
    number: Ints
    values: npt.NDArray[np.int64]
    told: npt.NDArray[np.bool_]


class _Part(NamedTuple):
    """Eight bytes of a key as a number, and their distance before the colon."""

    offset: int
    word: np.uint64
    mask: np.uint64


class Keys:
    """The keys to search for in JSON texts. Only the values of the first `kept` keys are returned."""

    def __init__(self, names: Sequence[str], kept: int) -> None:
        self.parts = [_list_parts(name) for name in names]
        self.lengths = [len(name) + 2 for name in names]
        self.kept = kept
        # Almost all that is no key is told by the last four bytes.
        tails = np.array(sorted({_read_tail(name) for name in names}), np.uint32)
        self._factor = _choose_factor(tails)
        self._tail_of_hash = np.zeros(1 << 32 - int(_HASH_BITS), np.uint32)
        self._tail_of_hash[(tails * self._factor) >> _HASH_BITS] = tails

    def match_tails(self, tails: npt.NDArray[np.uint32]) -> Mask:
        found: Mask = self._tail_of_hash[(tails * self._factor) >> _HASH_BITS] == tails
        return found


def _list_parts(name: str) -> tuple[_Part, ...]:
    """Return the bytes of a quoted key, before its colon, in pieces of at most eight bytes; the last bytes come
    first.
    """
    text = f'"{name}"'.encode()
    if len(text) <= WORD_BYTES:
        spare = WORD_BYTES - len(text)
        word = int.from_bytes(text, "little") << 8 * spare
        return (_Part(WORD_BYTES, np.uint64(word), ~_HEADS[spare]),)
    offsets = sorted({len(text), *range(WORD_BYTES, len(text), WORD_BYTES)})
    pieces = ((at, text[len(text) - at :][:WORD_BYTES]) for at in offsets)
    return tuple(_Part(at, np.uint64(int.from_bytes(piece, "little")), _HEADS[-1]) for at, piece in pieces)


def _read_tail(name: str) -> int:
    return int.from_bytes(f'"{name}"'.encode()[-_TAIL_BYTES:], "little")


def _choose_factor(tails: npt.NDArray[np.uint32]) -> np.uint32:
    """Return a hash factor that maps the tails to different table entries."""
    factors = np.arange(1, 1 << 16, 2, dtype=np.uint32) * np.uint32(0x9E3779B1) | np.uint32(1)
    return next(one for one in factors if len(set(((tails * one) >> _HASH_BITS).tolist())) == len(tails))


def find_templates(raws: Sequence[bytes], keys: Keys) -> Templates:
    """Return the JSON texts without the integers after some keys.

    A text stays unchanged if it is no object, holds another object or an escape, has a value other than an integer
    after one of the keys, or has a key twice.
    """
    return _Search(raws, keys).run()


class _Numbers(NamedTuple):
    row: Ints
    start: Ints
    end: Ints
    value: Ints


class _Search:
    def __init__(self, raws: Sequence[bytes], keys: Keys) -> None:
        joined = bytearray(b"\0").join([_LEAD, *raws, _LEAD])
        self._keys, self._rows = keys, len(raws)
        self._text: Bytes = np.frombuffer(joined, np.uint8)
        self._words: Words = view_words(self._text)
        self._edges: Ints = np.flatnonzero(self._text[: -len(_LEAD)] == 0)[len(_LEAD) :] + 1
        self._is_plain = self._find_plain(joined)

    def run(self) -> Templates:
        values = np.zeros((self._keys.kept, self._rows), np.int64)
        told = np.zeros((self._keys.kept, self._rows), bool)
        for key, found in [(key, self._read_integers(*places)) for key, *places in self._find_keys()]:
            mine = self._is_plain[found.row]
            numbers = found if mine.all() else _Numbers(*(column[mine] for column in found))
            if key < self._keys.kept:
                values[key, numbers.row], told[key, numbers.row] = numbers.value, True
            self._blank(numbers.start, numbers.end)
        buffers = [None, pa.py_buffer(self._edges.astype(np.int32)), pa.py_buffer(self._text)]
        numbered = pa.Array.from_buffers(pa.binary(), self._rows, buffers).dictionary_encode()
        number = np.frombuffer(numbered.indices.buffers()[1], np.int32, self._rows).astype(np.int64)
        return Templates([text[:-1] for text in numbered.dictionary.to_pylist()], number, values, told)

    def _find_plain(self, joined: bytearray) -> Mask:
        """Return a mask of the texts that are one object without nested objects, and without escapes, which may hide a
        key.
        """
        starts = self._edges[:-1]
        plain: Mask = self._text[starts] == _OPEN
        if joined.count(b"{") != int(plain.sum()):
            opened = self._find_rows(np.flatnonzero(self._text == _OPEN))
            plain &= np.bincount(opened, minlength=self._rows) == 1
        if b"\\" in joined:
            plain[self._find_rows(np.flatnonzero(self._text == _ESCAPE))] = False
        return plain

    def _find_rows(self, places: Ints) -> Ints:
        return np.searchsorted(self._edges, places, side="right") - 1

    def _find_keys(self) -> list[tuple[int, Ints, Ints]]:
        """Return for each key found its index, the positions of its colons, and the row of each colon."""
        colons = np.flatnonzero(self._text == _COLON)
        tails = np.ndarray(len(self._text) - 3, "<u4", self._text, strides=(1,))[colons - _TAIL_BYTES]
        apart = tails < _BLANK_LAST
        if apart.any():
            self._is_plain[self._find_rows(colons[apart])] = False
        colons = colons[self._keys.match_tails(tails)]
        row = np.repeat(np.arange(self._rows), np.diff(np.searchsorted(colons, self._edges)))
        last = self._words[colons - WORD_BYTES]
        found = []
        for key, (ending, *parts) in enumerate(self._keys.parts):
            mine = np.flatnonzero((last & ending.mask) == ending.word)
            for part in parts:
                mine = mine[self._words[colons[mine] - part.offset] == part.word]
            if len(mine):
                found.append((key, colons[mine], row[mine]))
        return found

    def _read_integers(self, colons: Ints, row: Ints) -> _Numbers:
        """Return the integer after each colon. A row without an integer there, or with two, is marked as not plain."""
        text = self._text
        start = skip_blanks(text, colons + 1)
        below = text[start] == _MINUS
        first = start + below if below.any() else start
        value, count = read_long_digits(self._words, first)
        end = first + count
        plain = (count > 0) & (count < 2 * WORD_BYTES) & _ENDS_NUMBER[text[end]]
        plain[1:] &= row[1:] != row[:-1]
        self._is_plain[row[~plain]] = False
        return _Numbers(row, start, end, np.where(below, -value, value))

    def _blank(self, start: Ints, end: Ints) -> None:
        """Replace each number in the text by a 0 and blanks. No two numbers may lie within eight bytes."""
        at, left = start, end - start
        while len(at):
            heads = _HEADS[np.minimum(left, WORD_BYTES)]
            self._words[at] = (self._words[at] & ~heads) | (_BLANKS & heads)
            long = left > WORD_BYTES
            at, left = at[long] + WORD_BYTES, left[long] - WORD_BYTES
        self._text[start] = _ZERO


CALL_IDS = ("correlation", "External id", "external id", "Sequence number")
CALL_NAMES = (
    *CALL_IDS,
    *("Ev Idx", "external ts", "Record function id", "Python id", "Python parent id"),
    *("Profiler Event Index", "Trace iteration"),
)
"""Keys that have columns of their own, or that only number events within the file."""
_KEYS = Keys(CALL_NAMES, len(CALL_IDS))
_COLUMN_OF_ID = ((0, 0), (2, 1), (1, 1), (3, 2))
"""Pairs of an index in CALL_IDS and its column; of two keys for one column, the last wins."""
_PATTERN = re.compile(
    rb'"(?:%s)"\s*+:\s*+(?:[^",}\]\0]++|"[^"\0]*+")?+(?:,\s*+)?+' % "|".join(map(re.escape, CALL_NAMES)).encode()
)


@dataclass(frozen=True)
class CallArguments:
    """The arguments of events: `number` is the index into `texts`, in order of first occurrence; ids are -1 for none."""

    number: Ints
    texts: tuple[bytes, ...]
    correlation: Ints
    external: Ints
    sequence: Ints


def read_call_arguments(raws: Sequence[msgspec.Raw], linked: Mask) -> CallArguments:
    """Read the arguments of events. Ids of events that are not `linked` are ignored."""
    found = find_templates(raws, _KEYS)
    pieces, ids = read_each(found.texts)
    ids = ids[:, found.number]
    for key, column in _COLUMN_OF_ID:
        ids[column] = np.where(found.told[key], found.values[key], ids[column])
    if not linked.all():
        ids = np.where(linked, ids, NO_ID)
    numbers = Numbers()
    number = np.array([numbers[piece] for piece in pieces], np.int64)[found.number]
    return CallArguments(number, tuple(numbers), *ids)


def read_each(raws: Sequence[bytes]) -> tuple[list[bytes], Ints]:
    """Return each text without its per-call values, and the ids: an array of shape (3, texts).

    Its rows are correlation, external id and sequence number.
    """
    known = decode_each([raw or b"{}" for raw in raws], IDENTITIES)
    entries = [Identity() if entry is None else entry for entry in known]
    external = [entry.external if entry.external is not None else entry.external_old for entry in entries]
    columns = ([entry.correlation for entry in entries], external, [entry.sequence for entry in entries])
    # No JSON holds this byte, and the pattern stops at it.
    return _PATTERN.sub(b"", b"\0".join(raws)).split(b"\0"), np.stack([read_ids(column) for column in columns])
