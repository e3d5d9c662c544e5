"""Limits with which every comparison has a given answer, so that both sides of a limit and the limit itself are seen."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from profiler_server.diagnosis.limits import list_limits

SIDES = {"below": -1, "at": 0, "above": 1}
"""Where a figure lies that is compared with a limit."""

_COMPARISONS = {
    name: (getattr(operator, name), reflected)
    for name, reflected in (("lt", "gt"), ("le", "ge"), ("gt", "lt"), ("ge", "le"))
}
_UFUNCS = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}


class Limit(np.float64):
    """A limit, or a multiple of it, that notes that it is compared. `side` is None for the usual answers."""

    name: str
    side: int | None
    compared: set[str]

    def __new__(cls, value: float, name: str, side: int | None, compared: set[str]) -> Limit:
        made = super().__new__(cls, value)
        made.name, made.side, made.compared = name, side, compared
        return made

    def __index__(self) -> int:
        return int(float(self))

    def __hash__(self) -> int:
        return hash(float(self))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        kind = _UFUNCS.get(ufunc.__name__)
        if kind is not None and method == "__call__":
            left, right = inputs
            if isinstance(left, Limit):
                return left.answer(kind, right)
            return right.answer(_COMPARISONS[kind][1], left)
        return getattr(ufunc, method)(*(float(x) if isinstance(x, Limit) else x for x in inputs), **options)

    def answer(self, kind: str, other: Any) -> Any:
        """Return whether the limit is less (`lt`) … than a figure or than each figure of an array."""
        self.compared.add(self.name)
        other = float(other) if isinstance(other, Limit) else other
        compare = _COMPARISONS[kind][0]
        if self.side is None or (np.isscalar(other) and not np.isfinite(other)):
            return compare(float(self), other)
        said = compare(0, self.side)
        return np.full(other.shape, said) if isinstance(other, np.ndarray) else said

    def times(self, value: float) -> Limit:
        return Limit(value, self.name, self.side, self.compared)


def _define(name: str) -> None:
    setattr(Limit, f"__{name}__", lambda self, other: self.answer(name, other))


for _name in _COMPARISONS:
    _define(_name)


def _scale(name: str) -> None:
    def method(self: Limit, other: Any) -> Any:
        found = getattr(float, name)(float(self), other) if isinstance(other, int | float) else NotImplemented
        if found is NotImplemented and isinstance(other, np.ndarray):
            found = getattr(np.float64(float(self)), name)(other)
        return self.times(found) if isinstance(found, float) else found

    setattr(Limit, name, method)


for _name in ("__mul__", "__rmul__"):
    _scale(_name)


@contextmanager
def force_limits(names: tuple[str, ...], side: int | None) -> Iterator[set[str]]:
    """Let these limits, all if there is none, answer from one side. The set gets the names of those that are compared."""
    compared: set[str] = set()
    places = [place for place in _find_places() if not names or place[1] in names]
    try:
        for module, name, value in places:
            setattr(module, name, Limit(value, name, side, compared))
        yield compared
    finally:
        for module, name, value in places:
            setattr(module, name, value)


@cache
def _find_places() -> tuple[tuple[ModuleType, str, float], ...]:
    """Return each module in which a limit stands or into which it is imported."""
    limits = list_limits()
    return tuple(
        (module, name, value)
        for place, module in sorted(sys.modules.items())
        if place.startswith("profiler_server.")
        for name, value in vars(module).items()
        if name in limits and value is limits[name] and isinstance(value, int | float)
    )
