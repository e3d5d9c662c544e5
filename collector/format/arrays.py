"""Make Arrow arrays of numbers and texts without `pa.array` and `to_numpy`, which import pandas if it is installed.

That import takes as long as reading a trace of 20 MB, and each helper process would repeat the import.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_OFFSETS_END = (1 << 31) - 1
_PLAIN_KINDS = frozenset("bif")
_LISTED = (
    (int, np.int64, pa.types.is_integer),
    (float, np.float64, pa.types.is_floating),
    (bool, np.bool_, pa.types.is_boolean),
)


def from_numbers(values: npt.NDArray[Any], absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers or booleans as an Arrow array of the same type, null where `absent` is true."""
    if values.dtype.kind not in _PLAIN_KINDS or not values.dtype.isnative:
        return pa.array(values, mask=absent)
    is_bool = values.dtype.kind == "b"
    data = _pack(values) if is_bool else pa.py_buffer(np.ascontiguousarray(values))
    validity = None if absent is None or not absent.any() else _pack(~absent)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, data])


def to_integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return an int64 column without nulls as a NumPy array. A column of one chunk is not copied."""
    chunks = [np.frombuffer(one.buffers()[1], np.int64, len(one), 8 * one.offset) for one in column.chunks if len(one)]
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks) if chunks else np.empty(0, np.int64)


def from_texts(texts: Sequence[str | None]) -> pa.Array:
    """Return texts as an Arrow array, null for None. Lone surrogates cannot be stored and become question marks."""
    parts = [b"" if text is None else text.encode("utf-8", "replace") for text in texts]
    ends = list(accumulate(map(len, parts), initial=0))
    if ends[-1] > _OFFSETS_END:
        return pa.array([None if text is None else text.encode("utf-8", "replace") for text in texts], pa.string())
    absent = np.array([text is None for text in texts], bool)
    validity = _pack(~absent) if absent.any() else None
    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.Array.from_buffers(pa.string(), len(parts), [validity, offsets, pa.py_buffer(b"".join(parts))])


def encode_texts(values: Any) -> pa.DictionaryArray:
    """Return texts (a list with None for null, or an array) as a dictionary array, in which each different text is
    stored once; the texts are stored in the order of their first occurrence."""
    if not isinstance(values, list):
        return from_values(values, pa.string()).dictionary_encode()
    place: dict[str | None, int] = {}
    codes = np.array([place.setdefault(text, len(place)) for text in values], np.int32)
    # Texts that no file can hold become the same ones.
    different = from_values(list(place), pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(different.indices.take(from_numbers(codes)), different.dictionary)


def from_values(values: Any, kind: pa.DataType) -> pa.Array:
    """Return an array or a list as an Arrow array of type `kind`. Raises an ArrowException, or OverflowError for an
    integer of more than 64 bits, if a value cannot be converted."""
    if isinstance(values, np.ndarray):
        found = from_numbers(values)
        return found if found.type == kind else found.cast(kind)
    types = set(map(type, values)) - {type(None)}
    if pa.types.is_string(kind) and types <= {str}:
        return from_texts(values)
    for told, dtype, is_kind in _LISTED:
        if is_kind(kind) and types <= {told}:
            return _from_list(values, kind, dtype)
    return pa.array(values, kind)


def _from_list(values: Sequence[Any], kind: pa.DataType, dtype: Any) -> pa.Array:
    absent = np.array([value is None for value in values], bool)
    try:
        numbers = np.array([value or 0 for value in values], dtype)
    except OverflowError:
        return pa.array(values, kind)
    found = from_numbers(numbers, absent)
    return found if found.type == kind else found.cast(kind)


def _pack(bits: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))
