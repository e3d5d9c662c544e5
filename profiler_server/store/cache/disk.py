"""A cache on disk of what takes seconds to compute from a rank with millions of slices.

Results of such a large rank are cached beside its tables between server starts, and a page does not wait for them: it
says that they are being computed. Those of any other rank are computed at once and cached in memory only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.store.cache.background import BACKGROUND
from profiler_server.store.cache.memory import Entry, MemoryCache
from profiler_server.store.cache.provisional import note_provisional
from profiler_server.store.cache.records import Records
from profiler_server.store.cache.stamp import Stamp, stamp_rank

AT_ONCE_SLICES = 1_000_000
"""What takes long is computed in the background for a rank with more: its page does not wait."""
MOST_SLICES = 20_000_000
"""It is not computed for a page for a rank with more: that takes gigabytes, and the timeline needs none of them."""
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NotReady:
    """Why a page shows no result: it is `pending`, or the rank is too large. `reason` is a sentence."""

    reason: str
    pending: bool


class DiskCache(Generic[T]):
    """One result of each rank. `kind` is its type, made of dataclasses, numbers, texts and arrays of int64.

    `name` is that of its file, unlike any other's; at most `limit` results are held in memory.
    """

    def __init__(self, name: str, kind: Any, compute: Callable[[RankRun], T], limit: int) -> None:
        self._name = name
        self._compute = compute
        self._memory: MemoryCache[T] = MemoryCache(limit)
        self._failed: dict[Hashable, Exception] = {}
        self._records: Records[T] = Records(name, kind)

    def read(self, rank: RankRun) -> T:
        """Return the result for the rank's files as they are, however long it takes. What `compute` raises passes through."""
        key, stamp = rank.key, stamp_rank(rank.run_path, rank.rank)
        if count_slices(rank) <= AT_ONCE_SLICES:
            return self._memory.find_or_compute(key, stamp, lambda: self._compute(rank))
        with _ONE_LARGE:
            entry = self._find(rank, stamp)
            if entry is None or entry.stamp != stamp:
                entry = Entry(stamp, self._compute(rank))
                self._memory.put(key, entry)
                self._records.write(rank, stamp, entry.result)
                # Computing takes hundreds of megabytes; the server lives on for weeks.
                pa.default_memory_pool().release_unused()
        return entry.result

    def peek(self, rank: RankRun) -> T | NotReady:
        """Return the result, or at once why it is not there yet; of a rank that records it may be some seconds old.

        Raises what `compute` raises, now or in the background.
        """
        slices = count_slices(rank)
        if slices <= AT_ONCE_SLICES:
            return self.read(rank)
        stamp = stamp_rank(rank.run_path, rank.rank)
        entry = self._find(rank, stamp)
        if entry is not None and entry.stamp == stamp:
            return entry.result
        if slices > MOST_SLICES:
            return NotReady(explain_too_large(rank, slices), False)
        key = rank.key
        failure = self._failed.pop(key, None)
        if failure is not None:
            note_provisional()  # it is tried again for the next request
            raise failure
        BACKGROUND.start((self._name, key), lambda: self._read_quietly(rank))
        if entry is not None and rank.state == "recording":
            return entry.result
        return NotReady(f"{slices:,} slices are read in the background; what they tell appears here.", True)

    def _read_quietly(self, rank: RankRun) -> None:
        try:
            self.read(rank)
        except RunError as error:
            self._failed[rank.key] = error
        except Exception as error:  # Nobody waits in this thread: the page that asks next is told.
            log.exception("%s of %s cannot be computed", self._name, rank.folder)
            self._failed[rank.key] = error

    def _find(self, rank: RankRun, stamp: Stamp) -> Entry[T] | None:
        """Return what is known from these files, or else from earlier ones."""
        entry = self._memory.find(rank.key)
        if entry is not None and entry.stamp == stamp:
            return entry
        stored = self._records.find(rank, stamp)
        if stored is None:
            return entry
        self._memory.put(rank.key, stored)
        return stored


_ONE_LARGE = threading.RLock()
"""Held while millions of slices are in memory: two ranks at a time would need twice of it.

Whoever holds it waits for no other lock but for an instant, so that nobody can wait in a circle.
"""


def count_slices(rank: RankRun) -> int:
    """Return the rows of the table `slices`, 0 where they cannot be counted: reading them says why."""
    try:
        return rank.count_rows("slices")
    except (RunError, OSError, pa.ArrowException):
        return 0


def explain_too_large(rank: RankRun, slices: int) -> str:
    return (
        f"{slices:,} slices are not summed beside a page; `profiler-server report {rank.run_path}` does it, "
        "which takes minutes and gigabytes of memory."
    )
