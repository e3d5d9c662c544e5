"""One operator call in a trace, with an estimate of its floating-point operations and of its least bytes.

Counted is the arithmetic in the operator's definition: a multiplication and an addition are two operations, an
exponential or a root is one. What an implementation does differently is ignored (recomputation, padding to tiles,
savings by Winograd or FFT). The least bytes are those of every input read once and every output written once. No cache
can do with fewer bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from collector.format.words import find_element_bytes
from collector.plugins import find_plugins
from collector.traces import formulas

PREFIX = "aten::"
Shape = tuple[int, ...]
UNKNOWN_ELEMENT_BYTES = 4
"""The dtype of a list of tensors is not recorded; PyTorch's default of float32 is assumed."""

_LARGEST_DIMENSION = 1 << 48
_MOST_DIMENSIONS = 64
_MOST_TENSORS = 100_000


@dataclass(frozen=True)
class Work:
    """The least work of an operator call: floating-point operations, and bytes read and written."""

    flops: float
    moved_bytes: float


@dataclass(frozen=True)
class Call:
    """The arguments of an operator call, by position. `tensors` has a shape for each argument that is a tensor, else
    None. `lists` has for each argument the shapes of its list of tensors, () for other arguments.
    """

    tensors: tuple[Shape | None, ...]
    lists: tuple[tuple[Shape, ...], ...]
    dtypes: tuple[str, ...]
    values: tuple[str, ...]

    def shape(self, index: int) -> Shape | None:
        """Return the shape of the argument at `index`, None if it is no tensor. A scalar tensor has the shape ()."""
        return self.tensors[index] if index < len(self.tensors) else None

    def element_bytes(self, index: int) -> int:
        """Return the bytes of one element of the tensor at `index`; 4, as for float32, if its dtype is unknown."""
        known = find_element_bytes(self.dtypes[index]) if index < len(self.dtypes) else None
        return UNKNOWN_ELEMENT_BYTES if known is None else known

    def tensor_bytes(self, index: int) -> int:
        """Return the bytes of the tensor at `index`, 0 if that argument is no tensor."""
        shape = self.shape(index)
        return 0 if shape is None else math.prod(shape) * self.element_bytes(index)

    def list_of(self, index: int) -> tuple[Shape, ...]:
        return self.lists[index] if index < len(self.lists) else ()

    def integers(self, index: int) -> Shape | None:
        """Return the integers in the argument at `index`, also a single integer; None if the trace has none."""
        value = self._parse(index)
        if isinstance(value, bool):
            return None
        if isinstance(value, int):
            return (value,)
        whole = isinstance(value, list) and all(isinstance(entry, int) for entry in value)
        return tuple(value) if whole else None

    def flag(self, index: int) -> bool | None:
        return {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}.get(
            self._text(index)
        )

    def flags(self, index: int) -> tuple[bool, ...] | None:
        value = self._parse(index)
        whole = isinstance(value, list) and all(entry in (0, 1) for entry in value)
        return tuple(map(bool, value)) if whole else None

    def _text(self, index: int) -> str:
        return self.values[index] if index < len(self.values) else ""

    def _parse(self, index: int) -> Any:
        try:
            return json.loads(self._text(index).replace("True", "true").replace("False", "false"))
        except ValueError:
            return None


Formula = Callable[[Call], Work | None]


def read_call(shapes: str | None, dtypes: str | None, values: str | None) -> Call | None:
    """Parse a call from the lists that a trace has for it, as JSON. Return None if the shapes are missing or invalid."""
    dims = _load(shapes)
    if not isinstance(dims, list) or len(dims) > _MOST_TENSORS:
        return None
    types = tuple(str(entry) for entry in _load(dtypes) or ())
    kinds = (*types, *("",) * len(dims))
    tensors = tuple(_read_shape(entry, kind) for entry, kind in zip(dims, kinds, strict=False))
    return Call(tensors, tuple(map(_read_list, dims)), types, tuple(map(_to_text, _load(values) or ())))


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape to which the shapes broadcast, None if they cannot be broadcast together."""
    result: list[int] = []
    for shape in shapes:
        padded = (*(1,) * (len(result) - len(shape)), *shape)
        result = [1] * (len(padded) - len(result)) + result
        for place, (known, given) in enumerate(zip(result, padded, strict=True)):
            if given != known and 1 not in (given, known):
                return None
            result[place] = given if known == 1 else known
    return tuple(result)


def _read_shape(entry: Any, kind: str) -> Shape | None:
    """Return the shape in an entry of "Input Dims", None if the entry is not a tensor's. `kind` is its "Input type".

    An empty list is a shape only if `kind` is a tensor's dtype, because traces write empty lists for other values too.
    """
    if not isinstance(entry, list) or len(entry) > _MOST_DIMENSIONS:
        return None
    if not all(isinstance(size, int) and 0 <= size <= _LARGEST_DIMENSION for size in entry):
        return None
    if not entry and (not kind or kind in ("Scalar", "Int", "Bool", "Double", "None") or kind.endswith("List")):
        return None
    return tuple(entry)


def _read_list(entry: Any) -> tuple[Shape, ...]:
    if not isinstance(entry, list):
        return ()
    found = (_read_shape(shape, "Tensor") for shape in entry if isinstance(shape, list))
    return tuple(shape for shape in found if shape is not None)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _load(text: str | None) -> Any:
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def estimate_work(name: str, shapes: str | None, dtypes: str | None, values: str | None = None) -> Work | None:
    """Return the estimated work of one call; None if the operator has no formula, or the shapes are not sufficient.

    `shapes`, `dtypes` and `values` are the trace's "Input Dims", "Input type" and "Concrete Inputs" as JSON.
    """
    formula = find_formula(name)
    if formula is None or shapes is None:
        return None
    call = read_call(shapes, dtypes, values)
    if call is None:
        return None
    work = formula(call)
    return work if work is not None and math.isfinite(work.flops + work.moved_bytes) else None


def find_formula(name: str) -> Formula | None:
    return _list_formulas().get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


@cache
def _list_formulas() -> dict[str, Formula]:
    return {name: formula for family in find_plugins(formulas, "FORMULAS") for name, formula in family.items()}
