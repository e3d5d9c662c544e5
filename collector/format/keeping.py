"""Results that are computed once, where whoever asks holds a store for them. Nothing is kept where none is held."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Keeper(Protocol):
    """What holds results: `keep` returns the one of this key and stamp, or computes it; `part` makes a thing once."""

    def keep(self, key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T: ...

    def part(self, make: Callable[[], T]) -> T: ...


HELD: ContextVar[Keeper | None] = ContextVar("held", default=None)


def keep(key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T:
    """Return the result of a key while its stamp stays the same, or compute it. What `compute` raises passes through."""
    keeper = HELD.get()
    return compute() if keeper is None else keeper.keep(key, stamp, compute)


def part(make: Callable[[], T]) -> T:
    """Return what a class or function makes without arguments: the same for as long as a store is held."""
    keeper = HELD.get()
    return make() if keeper is None else keeper.part(make)
