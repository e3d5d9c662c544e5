"""Number columns to dictionaries: what all the table builders need."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format.arrays import from_numbers, from_texts
from collector.traces.kineto.clock import Ints

LARGEST_SMALL = (1 << 31) - 1
_TABLE_PER_ROW, _LEAST_TABLE = 4, 1 << 12


class Texts(Protocol):
    """What has a text, or None, for a number."""

    def __getitem__(self, number: int, /) -> str | None: ...


def encode(codes: Ints, texts: Texts) -> pa.DictionaryArray:
    """Return a dictionary column from numbers into `texts`; a negative number and a None text are null.

    Only texts that occur get into the dictionary.
    """
    used, compact = compress(codes)
    picked = [texts[code] if code >= 0 else None for code in used.tolist()]
    place: dict[str, int] = {}
    target = [-1 if text is None else place.setdefault(text, len(place)) for text in picked]
    indices = np.array(target, np.int32)[compact] if len(used) else np.empty(0, np.int32)
    values = from_texts([clean(text) for text in place])
    return pa.DictionaryArray.from_arrays(from_numbers(indices, indices < 0), values)


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def nullable(values: Ints, absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return integers where negative ones, or those marked absent, are null."""
    return from_numbers(values, values < 0 if absent is None else absent)


def small(values: Ints) -> Ints:
    """Return integers where those that 32 bits cannot hold are 0: a device number like that is a fault of the file."""
    kept: Ints = np.where(np.abs(values) <= LARGEST_SMALL, values, 0)
    return kept


def compress(codes: Ints) -> tuple[Ints, Ints]:
    """Return the numbers that occur, rising, and the place of each one among them."""
    low, high = (int(codes.min()), int(codes.max())) if len(codes) else (0, 0)
    if high - low > _TABLE_PER_ROW * len(codes) + _LEAST_TABLE:
        used, places = np.unique(codes, return_inverse=True)
        return used, places
    # Numbers of names and the like lie close together: a table of them takes a tenth of a sort.
    table = np.zeros(high - low + 1, np.int64)
    table[codes - low] = 1
    used = np.flatnonzero(table)
    table[used] = np.arange(len(used))
    return used + low, table[codes - low]


def list_different(values: Ints) -> tuple[Ints, Ints]:
    """Return the different values in the order in which each comes first, and the place of each value among them."""
    encoded = from_numbers(values).dictionary_encode()
    different = np.frombuffer(encoded.dictionary.buffers()[1], np.int64, len(encoded.dictionary))
    return different, np.frombuffer(encoded.indices.buffers()[1], np.int32, len(values)).astype(np.int64)


def group(*columns: Ints) -> tuple[Ints, Ints]:
    """Group rows by several columns of integers. Return the first row of each group and the group of each row."""
    key, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        used, codes = compress(column)
        if count * len(used) >= 1 << 62:
            used_keys, key = np.unique(key, return_inverse=True)
            count = len(used_keys)
        key, count = key * len(used) + codes, count * len(used)
    _, first, groups = np.unique(key, return_index=True, return_inverse=True)
    return first, groups


def total(values: Ints, groups: Ints, count: int) -> Ints:
    """Return the exact sum of each group."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, values)
    return sums
