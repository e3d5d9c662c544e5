"""Results that were computed from a rank's files, kept until one of those files changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from collector.run import RankRun
from profiler_server.store.stamps import Stamp, stamp_rank

T = TypeVar("T")


class Kept(Generic[T]):
    """At most `limit` results, the oldest go first. Safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, tuple[Hashable, T]] = OrderedDict()
        self._computing: dict[Hashable, threading.RLock] = {}

    def recall(self, key: Hashable, stamp: Hashable, compute: Callable[[], T]) -> T:
        """Return the result that is kept under `key` for this stamp, or compute it. What `compute` raises passes through.

        Threads that ask for the same at once wait for the first of them.
        """
        with self._lock:
            known = self._results.get(key)
            if known is not None and known[0] == stamp:
                return known[1]
            computing = self._computing.setdefault(key, threading.RLock())
        with computing:
            with self._lock:
                known = self._results.get(key)
            if known is not None and known[0] == stamp:
                return known[1]
            try:
                result = compute()
                self._keep(key, (stamp, result))
            finally:
                with self._lock:
                    self._computing.pop(key, None)
            return result

    def _keep(self, key: Hashable, known: tuple[Hashable, T]) -> None:
        with self._lock:
            self._results[key] = known
            self._results.move_to_end(key)
            while len(self._results) > self._limit:
                self._results.popitem(last=False)


def stamp_of(rank: RankRun) -> Stamp:
    """Return the stamp of a rank's files."""
    return stamp_rank(rank.folder.parent.parent, rank.rank)
