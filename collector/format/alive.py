"""Find out whether a process that a run names still runs, to tell a run that records from one that crashed."""

from __future__ import annotations

import psutil

_SAME_START_S = 2.0
"""Two readings of one process's start time differ by less than this."""


def is_alive(pid: int, started: float | None) -> bool:
    """Return whether process `pid` of this host runs. `started` is its start (Unix s), so that a later process with the
    same pid does not count; None if the start is unknown."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) < _SAME_START_S
    except psutil.Error:
        return False
