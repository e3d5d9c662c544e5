"""Read integers out of text at many places at once, the text being an array of bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints

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
    """Return the eight bytes from every byte on."""
    words: Words = np.ndarray(len(text) - 7, "<u8", text, strides=(1,))
    return words


def skip_blanks(text: Bytes, at: Ints) -> Ints:
    # Of the bytes up to a blank only blanks stand outside of strings; a zero, which becomes 255, ends the text.
    while (blank := (text[at] - _ONE_BYTE) < _ZERO_BEFORE).any():
        at = at + blank
    return at


def read_digits(words: Words) -> tuple[Ints, Ints]:
    """Read the digits that eight bytes begin with. Return the number that they make, and how many they are.

    All eight are worked on at once: what is no digit gets its highest bit, the others move up to the end, and then
    neighbours are added up, first two, then four, then eight of them.
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
    """Read up to sixteen digits at each place, as `read_digits` does."""
    value, count = read_digits(words[at])
    long = np.flatnonzero(count == WORD_BYTES)
    if len(long):
        more, digits = read_digits(words[at[long] + WORD_BYTES])
        value[long] = value[long] * TENS[digits] + more
        count[long] += digits
    return value, count
