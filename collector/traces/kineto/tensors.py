"""What a block of memory holds: shape and type of the tensor, where the operator that took it tells them.

A trace records no tensor with an allocation. But the operator around it bears its arguments, and what comes of them is
believed only if it is as large as the block.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache

import numpy as np

from collector.format.words import find_element_bytes
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.model import Trace

GRANULE_BYTES = 512
"""The caching allocator of a device rounds blocks up to a multiple of it."""
_MOST_DIMS = 12
_TYPES = {
    "0": "uint8", "1": "int8", "2": "int16", "3": "int32", "4": "int64", "5": "float16", "6": "float32", "7": "float64",
    "8": "complex32", "9": "complex64", "11": "bool", "15": "bfloat16", "unsigned char": "uint8", "signed char": "int8",
    "short": "int16", "short int": "int16", "int": "int32", "long": "int64", "long int": "int64",
    "c10::Half": "float16", "float": "float32", "double": "float64", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""The name in Python, by the number or the name that a trace has for it."""
_MADE_BY_SIZE = {"aten::empty": (0, 1), "aten::empty_strided": (0, 2)}
"""Where these operators have size and type among their arguments."""

Tensor = tuple[str, str]


class Tensors:
    """Finds shape and type of the tensors for which blocks were taken."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        arguments = trace.arguments
        self._values, self._types = arguments.texts("Concrete Inputs"), arguments.texts("Input type")
        self._dims = arguments.texts("Input Dims", "Input dims")
        self._find = lru_cache(1 << 14)(self._guess)

    def describe(self, rows: Ints, sizes: Ints) -> list[Tensor | None]:
        """Return what blocks of some sizes hold that the slices in `rows` took; None for what is not told."""
        columns = self._trace.columns
        safe = np.maximum(rows, 0)
        taken = ((rows >= 0) & (sizes > 0)).tolist()
        given = zip(taken, columns.name[safe].tolist(), columns.args[safe].tolist(), sizes.tolist(), strict=True)
        return [self._find(name, args, size) if known else None for known, name, args, size in given]

    def _guess(self, name: int, args: int, size: int) -> Tensor | None:
        values, types, dims = (_parse(texts[args]) for texts in (self._values, self._types, self._dims))
        found = _find_tensor(self._trace.names[name], values, types, dims)
        if found is None:
            return None
        shape, dtype = found
        whole_bytes = math.prod(shape) * (find_element_bytes(dtype) or 0)
        return (json.dumps(shape), dtype) if whole_bytes <= size < whole_bytes + GRANULE_BYTES else None


def _find_tensor(
    name: str, values: list[object], types: list[object], dims: list[object]
) -> tuple[list[int], str] | None:
    """Return shape and type of what an operator makes, None where its arguments do not tell."""
    if name in _MADE_BY_SIZE:
        at, of = _MADE_BY_SIZE[name]
        shape = _read_shape(_pick(values, at))
        code = _pick(values, of) or "6"
    elif name == "aten::resize_":
        shape, code = _read_shape(_pick(values, 1)), _pick(types, 0)
    else:
        shapes = [found for entry in dims if (found := _read_shape(entry))]
        shape, code = _combine(name, shapes), _pick(types, 0)
    known = _TYPES.get(str(code))
    return (shape, known) if shape is not None and known is not None else None


def _combine(name: str, shapes: list[list[int]]) -> list[int] | None:
    """Return the shape that comes of those of the inputs: of a product of matrices, or of all inputs spread out."""
    if name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"):
        factors = shapes[-2:]
        return [*factors[0][:-1], factors[1][-1]] if len(factors) == 2 else None
    if not shapes:
        return None
    try:
        return [int(length) for length in np.broadcast_shapes(*map(tuple, shapes))]
    except ValueError:
        return None


def _read_shape(value: object) -> list[int] | None:
    entry = _parse(value) if isinstance(value, str) else value
    if not isinstance(entry, list) or len(entry) > _MOST_DIMS:
        return None
    shape = [length for length in entry if isinstance(length, int) and 0 <= length < 1 << 40]
    return shape if len(shape) == len(entry) else None


def _parse(text: str | None) -> list[object]:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _pick(values: list[object], at: int) -> object:
    return values[at] if at < len(values) else None
