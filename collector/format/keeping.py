"""Cache results in the store that a server or command holds (`HELD`). If none is held, nothing is cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Keeper(Protocol):
    """A store of results. `keep` and `part` do what the functions of this module do while the store is held."""

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
    """Return the result of `make()`, such as a cache of the caller's. While a store is held, `make` is called once, and
    each call with the same `make` returns the same object."""
    keeper = HELD.get()
    return make() if keeper is None else keeper.part(make)
