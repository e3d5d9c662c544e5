"""Read the argument values that differ from call to call, and remove them from the texts of the arguments.

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


def skip_blanks(text: Bytes, at: Ints) -> Ints:
    # Of the bytes up to a blank only blanks stand outside of strings; a zero, which becomes 255, ends the text.
    while (blank := (text[at] - _ONE_BYTE) < _ZERO_BEFORE).any():
        at = at + blank
    return at


def read_digits(words: Words) -> tuple[Ints, Ints]:
    """Read the digits at the start of eight-byte words. Return the numbers, and how many digits each has.

    All eight bytes of a word are processed at once. Bytes that are not digits get their highest bit set, and digits are
    shifted to the end. Then neighbours are combined: first two, then four, then eight.
    """
    bits = words ^ _ZEROS
    other = (((bits & _LOW_BITS) + _UP_FROM_TEN) | bits) & _HIGH_BITS
    # The lowest of these bits decides. Below it there are eight bits for each earlier byte, and seven more.
    below = (other & (~other + _ONE)) - _ONE
    count = ((below & _ONES) * _ONES) >> _TOP_BYTE
    count -= other != 0
    moved = bits << ((WORD_BYTES - count) << _BYTE_BITS)
    for mask, factor, shift in _ADDITIONS:
        moved = ((moved & mask) * factor) >> shift
    return moved.view(np.int64), count.view(np.int64)


def read_long_digits(words: Words, at: Ints) -> tuple[Ints, Ints]:
    """Read up to sixteen digits at each position `at`. Return the numbers, and how many digits each has."""
    value, count = read_digits(words[at])
    long = np.flatnonzero(count == WORD_BYTES)
    if len(long):
        more, digits = read_digits(words[at[long] + WORD_BYTES])
        value[long] = value[long] * TENS[digits] + more
        count[long] += digits
    return value, count


_LEAD = bytes(32)
"""Zero bytes around all texts, so that no bounds check is needed. A zero byte also separates texts, since JSON holds
none."""
_COLON, _MINUS, _ZERO, _OPEN, _ESCAPE = b":-0{\\"
_HEADS = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
"""Masks for the first 0 to 8 bytes of a word."""
_BLANKS = np.uint64(0x2020202020202020)
_BLANK_LAST = np.uint32(33 << 24)
"""Four bytes are less than this if the last of them is a blank."""
_TAIL_BYTES = 4
_ENDS_NUMBER = np.zeros(256, bool)
_ENDS_NUMBER[list(b" \t\r\n,}")] = True


CALL_IDS = ("correlation", "External id", "external id", "Sequence number")
CALL_NAMES = (
    *CALL_IDS,
    *("Ev Idx", "external ts", "Record function id", "Python id", "Python parent id"),
    *("Profiler Event Index", "Trace iteration"),
)
"""Keys that have columns of their own, or that only number events within the file."""


class _Part(NamedTuple):
    """Eight bytes of a key as a number, a mask of the bytes to compare, and their distance from the colon."""

    offset: int
    word: np.uint64
    mask: np.uint64


def _list_parts(name: str) -> tuple[_Part, ...]:
    """Return a quoted key, without a colon, in pieces of at most eight bytes. The last bytes come first."""
    text = f'"{name}"'.encode()
    if len(text) <= WORD_BYTES:
        spare = WORD_BYTES - len(text)
        word = int.from_bytes(text, "little") << 8 * spare
        return (_Part(WORD_BYTES, np.uint64(word), ~_HEADS[spare]),)
    offsets = sorted({len(text), *range(WORD_BYTES, len(text), WORD_BYTES)})
    pieces = ((at, text[len(text) - at :][:WORD_BYTES]) for at in offsets)
    return tuple(_Part(at, np.uint64(int.from_bytes(piece, "little")), _HEADS[-1]) for at, piece in pieces)


_PARTS = tuple(map(_list_parts, CALL_NAMES))
# Almost all that is no key is told by the last four bytes.
_TAILS = np.array([int.from_bytes(f'{name}"'.encode()[-_TAIL_BYTES:], "little") for name in CALL_NAMES], np.uint32)


class _Search:
    """A search for the integers after the keys of CALL_NAMES in JSON texts.

    A text stays unchanged in any of these cases: it is no object, it holds another object or an escape, it has a value
    other than an integer after one of the keys, or it has a key twice.
    """

    def __init__(self, raws: Sequence[bytes]) -> None:
        joined = bytearray(b"\0").join([_LEAD, *raws, _LEAD])
        self._rows = len(raws)
        self._text: Bytes = np.frombuffer(joined, np.uint8)
        # One eight-byte word for each byte of the text: the word that begins at this byte.
        self._words: Words = np.ndarray(len(joined) - 7, "<u8", self._text, strides=(1,))
        self._edges: Ints = np.flatnonzero(self._text[: -len(_LEAD)] == 0)[len(_LEAD) :] + 1
        self._is_plain = self._find_plain(joined)
        self.values = np.zeros((len(CALL_IDS), self._rows), np.int64)
        """The removed values by key of CALL_IDS and text."""
        self.told = np.zeros(self.values.shape, bool)
        """Which values exist."""

    def run(self) -> tuple[list[bytes], Ints]:
        """Return the distinct texts without the integers, in order of first occurrence, and the number of each text."""
        for key, found in [(key, self._read_integers(*places)) for key, *places in self._find_keys()]:
            mine = self._is_plain[found[0]]
            row, start, end, value = found if mine.all() else (column[mine] for column in found)
            if key < len(CALL_IDS):
                self.values[key, row], self.told[key, row] = value, True
            self._blank(start, end)
        buffers = [None, pa.py_buffer(self._edges.astype(np.int32)), pa.py_buffer(self._text)]
        numbered = pa.Array.from_buffers(pa.binary(), self._rows, buffers).dictionary_encode()
        number = np.frombuffer(numbered.indices.buffers()[1], np.int32, self._rows).astype(np.int64)
        return [text[:-1] for text in numbered.dictionary.to_pylist()], number

    def _find_plain(self, joined: bytearray) -> Mask:
        """Return a mask of the plain texts: one object, and no nested objects or escapes, which may hide a key."""
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
        """Return for each key found: its index, the positions of the colons after it, and the row of each colon."""
        colons = np.flatnonzero(self._text == _COLON)
        tails = np.ndarray(len(self._text) - 3, "<u4", self._text, strides=(1,))[colons - _TAIL_BYTES]
        apart = tails < _BLANK_LAST
        if apart.any():
            self._is_plain[self._find_rows(colons[apart])] = False
        colons = colons[np.isin(tails, _TAILS)]
        row = np.repeat(np.arange(self._rows), np.diff(np.searchsorted(colons, self._edges)))
        last = self._words[colons - WORD_BYTES]
        found = []
        for key, (ending, *parts) in enumerate(_PARTS):
            mine = np.flatnonzero((last & ending.mask) == ending.word)
            for part in parts:
                mine = mine[self._words[colons[mine] - part.offset] == part.word]
            if len(mine):
                found.append((key, colons[mine], row[mine]))
        return found

    def _read_integers(self, colons: Ints, row: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return row, start, end and value of the integer after each colon; `_is_plain` tells where there is one."""
        text = self._text
        start = skip_blanks(text, colons + 1)
        below = text[start] == _MINUS
        first = start + below if below.any() else start
        value, count = read_long_digits(self._words, first)
        end = first + count
        plain = (count > 0) & (count < 2 * WORD_BYTES) & _ENDS_NUMBER[text[end]]
        plain[1:] &= row[1:] != row[:-1]
        self._is_plain[row[~plain]] = False
        return row, start, end, np.where(below, -value, value)

    def _blank(self, start: Ints, end: Ints) -> None:
        """Replace each number in the text by a 0 and blanks. No two numbers may lie within eight bytes."""
        at, left = start, end - start
        while len(at):
            heads = _HEADS[np.minimum(left, WORD_BYTES)]
            self._words[at] = (self._words[at] & ~heads) | (_BLANKS & heads)
            long = left > WORD_BYTES
            at, left = at[long] + WORD_BYTES, left[long] - WORD_BYTES
        self._text[start] = _ZERO


_COLUMN_OF_ID = ((0, 0), (2, 1), (1, 1), (3, 2))
"""Pairs of an index in CALL_IDS and its column; of two keys for one column, the last wins."""
_PATTERN = re.compile(
    rb'"(?:%s)"\s*+:\s*+(?:[^",}\]\0]++|"[^"\0]*+")?+(?:,\s*+)?+' % "|".join(map(re.escape, CALL_NAMES)).encode()
)


@dataclass(frozen=True)
class CallArguments:
    """The arguments of events. `number` has the index of each event's arguments in `texts`, which is in order of first
    occurrence. Ids are -1 for none.
    """

    number: Ints
    texts: tuple[bytes, ...]
    correlation: Ints
    external: Ints
    sequence: Ints


def read_call_arguments(raws: Sequence[msgspec.Raw], linked: Mask) -> CallArguments:
    """Read the arguments of events. For events that are not in the mask `linked`, all ids are -1."""
    search = _Search(raws)
    texts, number = search.run()
    pieces, ids = read_each(texts)
    ids = ids[:, number]
    for key, column in _COLUMN_OF_ID:
        ids[column] = np.where(search.told[key], search.values[key], ids[column])
    if not linked.all():
        ids = np.where(linked, ids, NO_ID)
    numbers = Numbers()
    return CallArguments(numbers.number(pieces)[number], tuple(numbers), *ids)


def read_each(raws: Sequence[bytes]) -> tuple[list[bytes], Ints]:
    """Return texts without values that differ per call, and ids (3, texts): correlation, external id, sequence."""
    known = decode_each([raw or b"{}" for raw in raws], IDENTITIES)
    entries = [Identity() if entry is None else entry for entry in known]
    external = [entry.external if entry.external is not None else entry.external_old for entry in entries]
    columns = ([entry.correlation for entry in entries], external, [entry.sequence for entry in entries])
    # No JSON holds this byte, and the pattern stops at it.
    return _PATTERN.sub(b"", b"\0".join(raws)).split(b"\0"), np.stack([read_ids(column) for column in columns])
