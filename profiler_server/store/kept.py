"""Results that were computed from a rank's files, kept until one of those files changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from collector.format.run import RankRun
from profiler_server.store.stamps import Stamp, stamp_rank

T = TypeVar("T")


@dataclass(frozen=True)
class Known(Generic[T]):
    """A result, and the stamp of the files that it was computed from."""

    stamp: Hashable
    result: T


class Kept(Generic[T]):
    """At most `limit` results, the oldest go first. Safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Known[T]] = OrderedDict()
        self._computing: dict[Hashable, threading.RLock] = {}

    def recall(self, key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T:
        """Return the result that is kept under `key` for this stamp, or compute it. What `compute` raises passes through.

        Threads that ask for the same at once wait for the first of them.
        """
        with self._lock:
            known = self._results.get(key)
            if known is not None and known.stamp == stamp:
                return known.result
            computing = self._computing.setdefault(key, threading.RLock())
        with computing:
            known = self.find(key)
            if known is not None and known.stamp == stamp:
                return known.result
            try:
                result = compute()
                self.keep(key, Known(stamp, result))
            finally:
                with self._lock:
                    self._computing.pop(key, None)
            return result

    def recall_rank(self, rank: RankRun, compute: Callable[[], T]) -> T:
        """Return the result for a rank as it is seen and as its files are, or compute it."""
        return self.recall(rank.key, stamp_of(rank), compute)

    def find(self, key: Hashable) -> Known[T] | None:
        """Return what is kept under `key`, of whichever stamp."""
        with self._lock:
            return self._results.get(key)

    def keep(self, key: Hashable, known: Known[T]) -> None:
        with self._lock:
            self._results[key] = known
            self._results.move_to_end(key)
            while len(self._results) > self._limit:
                self._results.popitem(last=False)


def stamp_of(rank: RankRun) -> Stamp:
    """Return the stamp of a rank's files."""
    return stamp_rank(rank.run_path, rank.rank)
