"""Number repeated values, such as names and threads, and group rows by these numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from collector.format.arrays import from_numbers
from collector.format.intervals import Ints

KEYS_LIMIT_BYTES = 64 << 20
"""The total size of distinct names and threads that get numbers of their own."""
_KEY_BYTES = 160
"""The memory of a key in addition to its text."""
LARGEST_SMALL = (1 << 31) - 1
_TABLE_PER_ROW, _LEAST_TABLE = 4, 1 << 12


class Numbers(dict[Any, int]):
    """A mapping that gives each new key the next number, from 0."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def number(self, keys: Iterable[Any]) -> Ints:
        return np.array(list(map(self.__getitem__, keys)), np.int64)


class BoundedNumbers(Numbers):
    """Numbers for keys of `limit_bytes` in all; further keys get the number of `rest`, counted in `dropped`."""

    def __init__(self, rest: Any, limit_bytes: int | None = None) -> None:
        super().__init__()
        self._rest = rest
        self._left_bytes = limit_bytes or KEYS_LIMIT_BYTES
        self.dropped = 0

    def __missing__(self, key: Any) -> int:
        self._left_bytes -= len(key if isinstance(key, bytes) else str(key)) + _KEY_BYTES
        return super().__missing__(key) if self._left_bytes > 0 or key == self._rest else self[self._rest]

    def take(self, keys: Sequence[Any], places: Ints) -> Ints:
        """Return the number of each key. `places` has each event's index in `keys`, to count dropped events."""
        numbers = self.number(keys)
        if self._left_bytes <= 0:
            self.dropped += int(np.isin(places, [at for at, key in enumerate(keys) if key not in self]).sum())
        return numbers


def small(values: Ints) -> Ints:
    """Return integers, 0 for those beyond 32 bits: faults of the file, such as an impossible device."""
    kept: Ints = np.where(np.abs(values) <= LARGEST_SMALL, values, 0)
    return kept


def compress(codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers in ascending order, and the index of each value among them."""
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
    """Return the distinct values in order of first occurrence, and the index of each value among them."""
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
    """Return the exact sum of the values in each group. `groups` has each value's group, from 0 to `count` - 1."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, values)
    return sums
