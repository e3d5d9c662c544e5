"""Diagnoses for the run list and the pages, cached until a file of their run changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable
from dataclasses import dataclass

from collector.format.run import Run
from collector.format.schema.errors import RunError, StepscopeError
from profiler_server.store.cache import disk
from profiler_server.store.cache.background import BACKGROUND, Background
from profiler_server.store.cache.disk import count_slices, explain_too_large
from profiler_server.store.cache.memory import Entry, MemoryCache
from profiler_server.store.cache.stamp import FEW_RANKS, stamp_ranks
from profiler_server.store.headline import RunEntry
from profiler_server.web.shell import Panel

MOST_CACHED = 512
RESTED_S = 30.0
"""A run that records changes every second; the list, which follows it, has it judged no more often than this, and so do
the pages of one of very many ranks."""
log = logging.getLogger(__name__)
Key = tuple[Hashable, int]


@dataclass(frozen=True)
class _Judged:
    panel: Panel
    at_s: float


class Diagnoses:
    """Judge runs at most once per state of their files; in the background where a list needs many."""

    def __init__(self) -> None:
        self._cache: MemoryCache[_Judged] = MemoryCache(MOST_CACHED)
        self._list = Background()
        """Apart from what pages wait for: a rank with millions of slices must not hold up the list."""

    def judge(self, run: Run, rank: int) -> Panel:
        """Return the diagnosis of a rank. A run that cannot be judged gives a panel that says why."""
        key, stamp = (run.key, rank), _stamp(run)
        known = self._cache.find(key)
        if known is not None and known.stamp == stamp:
            return known.result.panel
        ranked = run.read_rank(rank)
        slices = count_slices(ranked)
        if slices > disk.MOST_SLICES:
            return Panel(None, explain_too_large(ranked, slices))
        if slices > disk.AT_ONCE_SLICES:
            BACKGROUND.start(("diagnosis", *key), lambda: self._fill(key, stamp, run))
            return Panel(None, f"{slices:,} slices are read in the background; what they tell appears here.", True)
        ranks = len(run.ranks)
        if ranks > FEW_RANKS:
            if known is not None and time.monotonic() - known.result.at_s < RESTED_S and ranked.state == "recording":
                return known.result.panel
            BACKGROUND.start(("diagnosis", *key), lambda: self._fill(key, stamp, run))
            return Panel(None, f"{ranks:,} ranks are read in the background; what they tell appears here.", True)
        return self._cache.find_or_compute(key, stamp, lambda: _judge(run, rank)).panel

    def peek(self, entry: RunEntry) -> Panel | None:
        """Return the diagnosis of a run's first rank if it is known; else have it made and return None.

        That of a run which records may be `RESTED_S` old.
        """
        if not entry.headline.ranks:
            return Panel(None, "This run has no rank folder.")
        run, rank = Run(entry.path), entry.headline.ranks[0]
        key, stamp = (run.key, rank), _stamp(run)
        known = self._cache.find(key)
        if known is not None and known.stamp == stamp:
            return known.result.panel
        if known is not None and entry.state == "recording" and time.monotonic() - known.result.at_s < RESTED_S:
            return known.result.panel
        if count_slices(run.read_rank(rank)) > disk.MOST_SLICES:
            return self.judge(run, rank)
        self._list.start(key, lambda: self._fill(key, stamp, run))
        return None

    def _fill(self, key: Key, stamp: Hashable, run: Run) -> None:
        self._cache.put(key, Entry(stamp, _judge(run, key[1])))

    def close(self) -> None:
        self._list.drop_waiting()


def _stamp(run: Run) -> Hashable:
    """Return what changes with any rank's files: a straggler is found by comparing with the other ranks."""
    try:
        return stamp_ranks(run.path, run.ranks)
    except RunError:
        return ()


def _judge(run: Run, rank: int) -> _Judged:
    from profiler_server.diagnosis.judging import diagnose  # the rules pull in what the first page does not need

    try:
        panel = Panel(diagnose(run, rank))
    except StepscopeError as error:
        panel = Panel(None, str(error))
    except Exception as error:  # A diagnosis that fails must not take the page down with it.
        log.exception("%s, rank %d cannot be judged", run.path, rank)
        panel = Panel(None, f"A rule failed: {type(error).__name__}: {error}")
    return _Judged(panel, time.monotonic())
