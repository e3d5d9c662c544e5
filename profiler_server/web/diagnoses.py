"""Diagnoses, kept until a file of their rank changes."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor

from collector.format.run import Run
from collector.format.schema.errors import StepscopeError
from profiler_server.store import lasting
from profiler_server.store.background import BACKGROUND
from profiler_server.store.headline import RunEntry
from profiler_server.store.lasting import count_slices, spell_too_large
from profiler_server.store.stamps import Stamp, stamp_rank
from profiler_server.web.shell import Panel

KEPT = 512
RESTED_S = 30.0
"""A run that records changes every second; the list, which follows it, has it judged no more often than this."""
log = logging.getLogger(__name__)
Key = tuple[Hashable, int, Stamp]


class Diagnoses:
    """Judge runs at most once per state of their files; in the background where a list needs many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Panel] = OrderedDict()
        self._latest: OrderedDict[tuple[Hashable, int], tuple[float, Panel]] = OrderedDict()
        self._pending: set[Key] = set()
        self._pool = ThreadPoolExecutor(1, "diagnoses")

    def judge(self, run: Run, rank: int) -> Panel:
        """Return the diagnosis of a rank. A run that cannot be judged gives a panel that says why."""
        key = (run.key, rank, stamp_rank(run.path, rank))
        with self._lock:
            known = self._kept.get(key)
        if known is not None:
            return known
        ranked = run.read_rank(rank)
        slices = count_slices(ranked)
        if slices > lasting.MOST_SLICES:
            return self._keep(key, Panel(None, spell_too_large(ranked, slices)))
        if slices > lasting.AT_ONCE_SLICES:
            BACKGROUND.start(("diagnosis", *key[:2]), lambda: self._keep(key, _judge(run, rank)))
            return Panel(None, f"{slices:,} slices are read in the background; what they tell appears here.", True)
        return self._keep(key, _judge(run, rank))

    def _keep(self, key: Key, panel: Panel) -> Panel:
        with self._lock:
            self._kept[key] = panel
            self._latest[key[:2]] = (time.monotonic(), panel)
            self._pending.discard(key)
            for kept in (self._kept, self._latest):
                while len(kept) > KEPT:
                    kept.popitem(last=False)
        return panel

    def _judge_later(self, key: Key, run: Run, rank: int) -> None:
        with self._lock:
            if any(pending[:2] == key[:2] for pending in self._pending):
                return  # a run that grows while it is judged is asked for again
            self._pending.add(key)
        self._pool.submit(lambda: self._keep(key, _judge(run, rank)))

    def peek(self, entry: RunEntry) -> Panel | None:
        """Return the diagnosis of a run's first rank if it is known; else have it made and return None.

        That of a run which records may be `RESTED_S` old.
        """
        if not entry.headline.ranks:
            return Panel(None, "This run has no rank folder.")
        rank = entry.headline.ranks[0]
        run = Run(entry.path)
        key = (run.key, rank, stamp_rank(entry.path, rank))
        with self._lock:
            if key in self._kept:
                return self._kept[key]
            judged_s, latest = self._latest.get(key[:2], (float("-inf"), None))
        if entry.state == "recording" and time.monotonic() - judged_s < RESTED_S:
            return latest
        if count_slices(run.read_rank(rank)) > lasting.MOST_SLICES:
            return self.judge(run, rank)
        self._judge_later(key, run, rank)
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _judge(run: Run, rank: int) -> Panel:
    from profiler_server.diagnosis.judging import diagnose  # the rules pull in what the first page does not need

    try:
        return Panel(diagnose(run, rank))
    except StepscopeError as error:
        return Panel(None, str(error))
    except Exception as error:  # A rule that fails must not take the page down with it.
        log.exception("%s, rank %d cannot be judged", run.path, rank)
        return Panel(None, f"A rule failed: {type(error).__name__}: {error}")
