"""Number columns to dictionaries: what all the table builders need."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.traces.kineto.clock import Ints

LARGEST_SMALL = (1 << 31) - 1


class Texts(Protocol):
    """What has a text, or None, for a number."""

    def __getitem__(self, number: int, /) -> str | None: ...


def encode(codes: Ints, texts: Texts) -> pa.DictionaryArray:
    """Return a dictionary column from numbers into `texts`; a negative number and a None text are null.

    Only texts that occur get into the dictionary.
    """
    used, compact = np.unique(codes, return_inverse=True)
    picked = [texts[code] if code >= 0 else None for code in used.tolist()]
    place: dict[str, int] = {}
    target = [-1 if text is None else place.setdefault(text, len(place)) for text in picked]
    indices = np.array(target, np.int32)[compact] if len(used) else np.empty(0, np.int32)
    values = pa.array([clean(text) for text in place], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), values)


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def nullable(values: Ints, absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return integers where negative ones, or those marked absent, are null."""
    return pa.array(values, mask=values < 0 if absent is None else absent)


def small(values: Ints) -> Ints:
    """Return integers where those that 32 bits cannot hold are 0: a device number like that is a fault of the file."""
    kept: Ints = np.where(np.abs(values) <= LARGEST_SMALL, values, 0)
    return kept


def group(*columns: Ints) -> tuple[Ints, Ints]:
    """Group rows by several columns of integers. Return the first row of each group and the group of each row."""
    length = len(columns[0])
    key = np.zeros(length, np.int64)
    for column in columns:
        _, codes = np.unique(column, return_inverse=True)
        _, key = np.unique(key * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    _, first = np.unique(key, return_index=True)
    return first, key


def total(values: Ints, groups: Ints, count: int) -> Ints:
    """Return the exact sum of each group."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, values)
    return sums
