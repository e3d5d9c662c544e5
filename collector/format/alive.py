"""Whether a process named in a run still runs."""

from __future__ import annotations

import psutil

_SAME_START_S = 2.0
"""Two readings of one process's start time differ by less than this."""


def is_alive(pid: int, started: float | None) -> bool:
    """Return whether a process of this host runs. `started` (Unix s) excludes a later process with the same pid."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) < _SAME_START_S
    except psutil.Error:
        return False
