"""Batches that are made in the process that trains (`num_workers=0`): the same clocks, around `fetch`.

The clocks cost more than a small batch does, so most small batches pass untouched: how long they took is in the word
log, and the sidecar divides it as the batches that were timed divided theirs.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from collector.edge import hide_frame
from collector.ring.stage_log import StageLog
from collector.workers.fetching import FetchProbe, Place
from collector.workers.guard import Guard
from collector.workers.tally import BATCH_COST_NS, Rhythm


class FetchHere:
    """Stands in for `fetch` of one fetcher. The user's objects are as they were whenever no batch is being made.

    `thread` holds the number of the thread that trains: only its fetches are in the word log.
    """

    __slots__ = (
        "__weakref__",
        "_batch",
        "_fetch",
        "_fetcher",
        "_guard",
        "_pid",
        "_place",
        "_probe",
        "_rhythm",
        "_thread",
    )

    def __init__(self, fetcher: Any, log: StageLog, place: tuple[int, int], thread: Sequence[int]) -> None:
        # Weakly: the fetcher holds this, and must die when its iterator does, as it would without us.
        self._fetcher = weakref.ref(fetcher)
        self._fetch = type(fetcher).fetch
        self._rhythm = Rhythm(BATCH_COST_NS)
        self._probe = probe = FetchProbe(fetcher, fetcher.dataset, log, self._rhythm)
        self._guard = Guard("the DataLoader in the process that trains", lambda _: probe.detach())
        self._thread = thread
        self._place = place
        self._batch = 0
        self._pid = os.getpid()
        fetcher.fetch = self._watched_fetch

    def detach(self) -> None:
        """Give the fetcher back as it was."""
        fetcher = self._fetcher()
        if fetcher is not None:
            with contextlib.suppress(ReferenceError):  # its iterator has just gone
                self._probe.detach()
            if vars(fetcher).get("fetch") == self._watched_fetch:
                del fetcher.fetch

    def _watched_fetch(self, index: Any) -> Any:
        rhythm = self._rhythm
        try:
            # `rhythm.is_due()` is written out for the usual batch: another function would have to come into the caches.
            if not rhythm.left or self._thread[0] != get_ident():
                return self._timed_fetch(index, rhythm.is_due())
            rhythm.left -= 1
            self._batch += 1
            return self._fetch(self._fetcher(), index)
        except BaseException as error:
            hide_frame(error)
            raise

    def _timed_fetch(self, index: Any, timed: bool) -> Any:
        fetcher = self._fetcher()
        # A child that was forked from here must not write into its parent's log.
        if os.getpid() != self._pid:
            try:
                return self._fetch(fetcher, index)
            except BaseException as error:
                hide_frame(error)
                raise
        run, probe = self._guard.run, self._probe
        run(probe.begin, len(index) if hasattr(index, "__len__") else 1, timed)
        picked_ns = perf_counter_ns()
        try:
            batch = self._fetch(fetcher, index)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            run(probe.end)
            run(probe.leave_all)
        run(probe.write, Place(*self._place, self._batch, picked_ns, picked_ns))
        self._batch += 1
        return batch
