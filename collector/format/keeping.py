"""A cache for results. It works only inside a block that holds a store; elsewhere nothing is cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Keeper(Protocol):
    """A store of results: `keep` returns the result for a key and stamp, or computes it; `part` calls `make` only once."""

    def keep(self, key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T: ...

    def part(self, make: Callable[[], T]) -> T: ...


HELD: ContextVar[Keeper | None] = ContextVar("held", default=None)


def keep(key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T:
    """Return the cached result for `key` if its `stamp` is unchanged, else call `compute`.

    The stamp is a version of the data behind the result, such as the size and time of a file. Errors from `compute`
    pass through.
    """
    keeper = HELD.get()
    return compute() if keeper is None else keeper.keep(key, stamp, compute)


def part(make: Callable[[], T]) -> T:
    """Return the result of `make()`. While a store is held, `make` runs once, and each call returns the same object."""
    keeper = HELD.get()
    return make() if keeper is None else keeper.part(make)
