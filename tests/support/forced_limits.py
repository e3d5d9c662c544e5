"""Limits with which every comparison has a given answer, so that both sides of a limit and the limit itself are seen."""

from __future__ import annotations

import operator
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from profiler_server import analysis, diagnosis
from profiler_server.derive.store import Store
from profiler_server.diagnosis.limits import list_limits

SIDES = {"below": -1, "at": 0, "above": 1}
"""Where a figure lies that is compared with a limit."""


class Forced:
    """A limit, or a multiple of it, that notes that it is compared. `side` is None for the usual answers."""

    name: str
    side: int | None
    compared: set[str]
    plain: float

    def __hash__(self) -> int:
        return hash(self.plain)

    def __lt__(self, other: Any) -> Any:
        return self.answer(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self.answer(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self.answer(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self.answer(operator.ge, other)

    def __mul__(self, other: Any) -> Any:
        return self.times(other)

    def __rmul__(self, other: Any) -> Any:
        return self.times(other)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        compare = _UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        if compare is None:
            return getattr(ufunc, method)(*map(_strip, inputs), **options)
        left, right = inputs
        return left.answer(compare, right) if isinstance(left, Forced) else right.answer(_REFLECTED[compare], left)

    def answer(self, compare: Callable[[Any, Any], Any], other: Any) -> Any:
        """Return whether the limit is less than … a figure or each figure of an array."""
        self.compared.add(self.name)
        other = _strip(other)
        if self.side is None or (np.isscalar(other) and not np.isfinite(other)):  # no figure, which has no side
            return compare(self.plain, other)
        answer = compare(0, self.side)
        return np.full(other.shape, answer) if isinstance(other, np.ndarray) else answer

    def times(self, other: Any) -> Any:
        product = self.plain * _strip(other)
        return _force(product, self.name, self.side, self.compared) if np.isscalar(product) else product


class Share(Forced, float):
    """A limit that is a real number."""


class Count(Forced, int):
    """A limit that is a whole number."""


_REFLECTED = {operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt, operator.ge: operator.le}
_UFUNCS = {"less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge}


def _force(value: Any, name: str, side: int | None, compared: set[str]) -> Forced:
    made: Forced = Count(value) if isinstance(value, int) else Share(value)
    made.name, made.side, made.compared, made.plain = name, side, compared, value
    return made


def _strip(value: Any) -> Any:
    return value.plain if isinstance(value, Forced) else value


def find_compared(run: Callable[[], object]) -> Sequence[str]:
    """Return the names of the limits with which figures are compared in a call."""
    with force_limits((), None) as compared:
        run()
    return sorted(compared)


@contextmanager
def force_limits(names: tuple[str, ...], side: int | None) -> Iterator[set[str]]:
    """Let these limits, all if there is none, answer from one side. The set gets the names of those that are compared."""
    compared: set[str] = set()
    places = [place for place in _find_places() if not names or place[1] in names]
    try:
        for module, name, value in places:
            setattr(module, name, _force(value, name, side, compared))
        with Store().held():  # what follows from forced limits is not kept
            yield compared
    finally:
        for module, name, value in places:
            setattr(module, name, value)


@cache
def _find_places() -> tuple[tuple[ModuleType, str, float], ...]:
    """Return each module in which a limit stands or into which it is imported."""
    for package in (analysis, diagnosis):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)
    limits = list_limits()
    return tuple(
        (module, name, value)
        for place, module in sorted(sys.modules.items())
        if place.startswith("profiler_server.")
        for name, value in vars(module).items()
        if name in limits and value is limits[name] and isinstance(value, int | float)
    )
