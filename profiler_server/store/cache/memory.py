"""A cache in memory of what was computed from a rank's files; an entry is good until one of those files changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from collector.format.run import RankRun
from profiler_server.store.cache.stamp import stamp_rank

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A cached result, and the stamp of the files that it was computed from."""

    stamp: Hashable
    result: T


class MemoryCache(Generic[T]):
    """At most `limit` results, the oldest go first. Safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Entry[T]] = OrderedDict()
        self._computing: dict[Hashable, threading.RLock] = {}

    def find_or_compute(self, key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result of this stamp, or compute it. What `compute` raises passes through.

        Threads that ask for the same at once wait for the first of them.
        """
        with self._lock:
            entry = self._results.get(key)
            if entry is not None and entry.stamp == stamp:
                return entry.result
            computing = self._computing.setdefault(key, threading.RLock())
        with computing:
            entry = self.find(key)
            if entry is not None and entry.stamp == stamp:
                return entry.result
            try:
                result = compute()
                self.put(key, Entry(stamp, result))
            finally:
                with self._lock:
                    self._computing.pop(key, None)
            return result

    def find_or_compute_rank(self, rank: RankRun, compute: Callable[[], T]) -> T:
        """Return the result for a rank as it is seen and as its files are, or compute it."""
        return self.find_or_compute(rank.key, stamp_rank(rank.run_path, rank.rank), compute)

    def find(self, key: Hashable) -> Entry[T] | None:
        """Return the entry under `key`, of whichever stamp."""
        with self._lock:
            return self._results.get(key)

    def put(self, key: Hashable, entry: Entry[T]) -> None:
        with self._lock:
            self._results[key] = entry
            self._results.move_to_end(key)
            while len(self._results) > self._limit:
                self._results.popitem(last=False)
