"""Who makes the items of a watched input: the training thread inside of `next()`, or somebody beside it."""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

MOST_ITEMS = 256
"""Items that are looked at: what reads them hardly changes later, and the clocks of the processor are system calls."""
_TOLD_AT = (4, 16, 64, MOST_ITEMS)
COMPUTING_FRAC = 0.5
"""From this share on, the training thread is busy itself in `next()`."""
_BESIDE_FRAC = 0.1
_IDLE_THREADS = ("TMonitor", "_EventLoggerThread")
"""Threads of progress bars and loggers, by their class."""


class Making:
    """The clocks around `next()`, for the first items. Called on the training thread only."""

    __slots__ = ("_beside_ns", "_cpu_ns", "_has_others", "_wall_ns", "items")

    def __init__(self) -> None:
        self.items = self._wall_ns = self._cpu_ns = self._beside_ns = 0
        self._has_others = False

    @property
    def is_on(self) -> bool:
        return self.items < MOST_ITEMS

    def start(self) -> tuple[int, int, int]:
        """Return the clocks before an item."""
        return perf_counter_ns(), thread_time_ns(), process_time_ns()

    def stop(self, before: tuple[int, int, int]) -> bool:
        """Add an item; return whether what is known is to be told now."""
        wall_ns, cpu_ns = perf_counter_ns() - before[0], thread_time_ns() - before[1]
        self._wall_ns += wall_ns
        self._cpu_ns += min(cpu_ns, wall_ns)
        self._beside_ns += max(process_time_ns() - before[2] - cpu_ns, 0)
        self.items += 1
        if self.items not in _TOLD_AT:
            return False
        self._has_others = self._has_others or _has_others()
        return True

    def describe(self) -> dict[str, Any]:
        """Return the fields of `schema.manifest.Loader` that say it, none where there is nothing to say."""
        if not self.items or not self._wall_ns:
            return {}
        cpu_frac = self._cpu_ns / self._wall_ns
        beside = self._has_others or self._beside_ns > _BESIDE_FRAC * self._wall_ns
        return {"cpu_frac": round(cpu_frac, 3), "reads_ahead": bool(cpu_frac < COMPUTING_FRAC and beside)}


def _has_others() -> bool:
    """Say whether there is another thread of Python, or a process of multiprocessing, that may make the items."""
    here = (threading.main_thread(), threading.current_thread())
    if any(each not in here and type(each).__name__ not in _IDLE_THREADS for each in threading.enumerate()):
        return True
    processes = sys.modules.get("multiprocessing.process")
    return bool(processes is not None and processes.active_children())
