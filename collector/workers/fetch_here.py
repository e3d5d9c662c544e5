"""Batches that are made in the process that trains (`num_workers=0`): the same clocks, around `fetch`."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from collector.ring.stage_log import StageLog
from collector.workers.fetching import FetchProbe, Place
from collector.workers.guard import Guard


class FetchHere:
    """Stands in for `fetch` of one fetcher. The user's objects are as they were whenever no batch is being made."""

    def __init__(self, fetcher: Any, log: StageLog, loader: int, epoch: int) -> None:
        # Weakly: the fetcher holds this, and must die when its iterator does, as it would without us.
        self._fetcher = weakref.proxy(fetcher)
        self._fetch: Callable[[Any], Any] = functools.partial(type(fetcher).fetch, self._fetcher)
        self._probe = probe = FetchProbe(fetcher, fetcher.dataset, log)
        self._guard = Guard("the DataLoader in the process that trains", lambda _: probe.detach())
        self._place = (loader, epoch)
        self._batch = 0
        self._pid = os.getpid()
        fetcher.fetch = self._timed_fetch

    def detach(self) -> None:
        """Give the fetcher back as it was."""
        with contextlib.suppress(ReferenceError):  # its iterator has just gone
            self._probe.detach()
            if vars(self._fetcher).get("fetch") == self._timed_fetch:
                del self._fetcher.fetch

    def _timed_fetch(self, index: Any) -> Any:
        # A child that was forked from here must not write into its parent's log.
        if os.getpid() != self._pid:
            return self._fetch(index)
        self._guard.run(self._probe.begin, len(index) if hasattr(index, "__len__") else 1)
        picked_ns = perf_counter_ns()
        try:
            batch = self._fetch(index)
        finally:
            self._guard.run(self._probe.end)
            self._guard.run(self._probe.leave)
        self._guard.run(self._probe.write, Place(*self._place, self._batch, picked_ns, picked_ns))
        self._batch += 1
        return batch
