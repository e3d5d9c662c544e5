"""Derived results in memory: one store for each server or command, bounded in bytes."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from collector.format.keeping import HELD
from profiler_server.derive.background import Background

if TYPE_CHECKING:
    from collector.traces.workers import Workers

MOST_BYTES = 1 << 30
STOP_LIMIT_S = 2.0
_SMALL_BYTES = 64
"""Bytes of a number, or of an object without its contents."""
_MEASURED = 256
"""The number of entries of a long value that are measured. Their average stands for the other entries."""
T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A value, the stamp of the files behind it, its approximate size, and `made_s`, the `time.monotonic` at which
    the value was true."""

    stamp: Hashable
    value: T
    bytes: int = 0
    made_s: float = 0.0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.made_s


class Same(weakref.ref[Any]):
    """A weak reference to an argument, compared by identity. Results are dropped once the argument is deleted."""

    __slots__ = ("_id",)
    _id: int

    def __new__(cls, value: object, forget: Callable[[Any], None]) -> Same:
        same = super().__new__(cls, value, forget)
        same._id = id(value)
        return same

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Same) and (own := self()) is not None and own is other())


class Store:
    """A thread-safe cache of at most `most_bytes` bytes. The least recently used values are dropped first.

    `background` runs work in threads, so that pages need not wait. `many` runs the reading of very large runs in the
    same way; their ranks are read in the processes that `choose_workers` returns. The reading stops once `stopping` is
    set."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.background, self.many = Background(), Background(head_start=False)
        self.stopping = threading.Event()
        self.choose_workers: Callable[[int], Workers] | None = None
        self.one_large = threading.RLock()
        """A lock that is held while millions of slices are in memory, because two ranks at a time would need twice the
        memory.

        Its holder waits only briefly for any other lock, so that no deadlock can arise.
        """
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.RLock()
        self._entries: OrderedDict[Hashable, Entry[Any]] = OrderedDict()
        self._computing: dict[Hashable, threading.RLock] = {}
        self._parts: dict[Callable[[], Any], Any] = {}
        self._has_orphans = False

    @contextmanager
    def held(self) -> Iterator[Store]:
        """Make this the current store, in this context and in background work that it starts."""
        token = HELD.set(self)
        try:
            yield self
        finally:
            HELD.reset(token)

    def keep(self, key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T:
        """Return the value under `key` if it has this stamp, else compute and keep it. Exceptions of `compute` pass
        through.

        Threads that request the same value at the same time share one computation.
        """
        with self._lock:
            entry = self.find(key)
            if entry is not None and entry.stamp == stamp:
                return cast(T, entry.value)
            computing = self._computing.setdefault(key, threading.RLock())
        with computing:
            entry = self.find(key)
            if entry is not None and entry.stamp == stamp:
                return cast(T, entry.value)
            try:
                return self.put(key, stamp, compute())
            finally:
                with self._lock:
                    self._computing.pop(key, None)

    def find(self, key: Hashable) -> Entry[Any] | None:
        """Return the entry under `key`, even if its stamp is old; None if there is no entry."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: Hashable, stamp: Hashable, value: T, made_s: float | None = None) -> T:
        """Keep a value under `key` in place of an earlier one, and return it. `stamp` is that of the files behind
        it. `made_s` is the time at which the value was true, by default now."""
        entry = Entry(stamp, value, measure_bytes(value), time.monotonic() if made_s is None else made_s)
        with self._lock:
            if self._has_orphans:
                self._has_orphans = False
                for orphan in [known for known in self._entries if _is_orphan(known)]:
                    self._drop(orphan)
            if key in self._entries:
                self._drop(key)
            self._entries[key] = entry
            self._bytes += entry.bytes
            while self._bytes > self._most_bytes and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))
        return value

    def _drop(self, key: Hashable) -> None:
        self._bytes -= self._entries.pop(key).bytes

    def name(self, argument: object) -> Hashable:
        """Return the key of an argument: a plain value itself, the `key` of an object that has one, or else the object."""
        if isinstance(argument, tuple):
            return tuple(map(self.name, argument))
        if argument is None or isinstance(argument, (str, int, float)):
            return argument
        key = getattr(argument, "key", None)
        return cast(Hashable, key) if key is not None else Same(argument, self._note_orphans)

    def _note_orphans(self, gone: Any) -> None:
        self._has_orphans = True  # and no more: this may come at any moment, in any thread

    def part(self, make: Callable[[], T]) -> T:
        """Return the object of this store that `make` returns. `make` is called once, and later calls return the
        same object."""
        with self._lock:
            if make not in self._parts:
                self._parts[make] = make()
            return cast(T, self._parts[make])

    def close(self) -> None:
        """Stop the reading of very large runs, and wait at most two seconds for its processes to end."""
        self.stopping.set()
        wait(self.many.drop_waiting(), STOP_LIMIT_S)
        self.stopping.clear()


def find_store() -> Store:
    """Return the current store. If there is none, open a store and make it the current one, because a script usually
    makes several calls.
    """
    held = HELD.get()
    if not isinstance(held, Store):
        held = Store()
        HELD.set(held)
    return held


def _is_orphan(key: Hashable) -> bool:
    return any(map(_is_orphan, key)) if isinstance(key, tuple) else isinstance(key, Same) and key() is None


def measure_bytes(value: Any) -> int:
    """Return approximately how many bytes of memory a value takes. Long values are estimated from their first entries."""
    if value is None or isinstance(value, (int, float)):  # most of them, and this is done for each result
        return _SMALL_BYTES
    if isinstance(value, (str, bytes)):
        return len(value) + _SMALL_BYTES
    if isinstance(value, (tuple, list, frozenset, set)):
        return _SMALL_BYTES + _measure_some(list(islice(value, _MEASURED)), len(value))
    if (size := getattr(value, "nbytes", None)) is not None:  # arrays and tables have `nbytes`
        return int(size) + _SMALL_BYTES
    if is_dataclass(value):
        return _SMALL_BYTES + sum(map(measure_bytes, vars(value).values()))
    if isinstance(value, Mapping):
        return 2 * _SMALL_BYTES * len(value) + _measure_some(list(islice(value.values(), _MEASURED)), len(value))
    return _SMALL_BYTES


def _measure_some(values: list[Any], count: int) -> int:
    return sum(map(measure_bytes, values)) * count // len(values) if values else 0
