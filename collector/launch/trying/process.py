"""The processes of one trial: started, watched, and ended with all that they started."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY_S = 0.05
_GONE_S = 5.0
_BUSY_CORES, _IDLE_FRAC = 0.25, 0.2


def run_process(
    words: Sequence[str], environment: Mapping[str, str], log: Path, result: Path, limit_s: float
) -> int | None:
    """Run a command until it ends, its result is there or the time is over, and end all that it started.

    Return its exit code, None if it was ended. Its output goes to `log`.
    """
    _adopt_orphans(True)
    others = _list_children()
    end = time.monotonic() + limit_s
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    try:
        while process.poll() is None and not result.exists() and time.monotonic() < end:
            time.sleep(_LOOK_EVERY_S)
        return process.poll()
    finally:
        _end_children(others)
        _adopt_orphans(False)
        process.poll()


def _adopt_orphans(is_wanted: bool) -> None:
    """Make processes whose parent ended children of this one, or no longer: a launcher starts workers in own sessions."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)


def _list_children() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def _end_children(others: Sequence[psutil.Process]) -> None:
    end = time.monotonic() + _GONE_S
    while (left := [each for each in _list_children() if each not in others]) and time.monotonic() < end:
        for each in left:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(left, timeout=1.0)


class Neighbours:
    """Counts the processors that other programs use, from when it is made on."""

    def __init__(self) -> None:
        self._begun = self._read()

    def count(self) -> tuple[float, float]:
        """Return the processors that other programs used, and those that were idle."""
        elapsed_s, own_s, busy_s, idle_s = (now - then for now, then in zip(self._read(), self._begun, strict=True))
        return max(busy_s - own_s, 0.0) / elapsed_s, idle_s / elapsed_s

    def describe(self) -> str:
        """Return a sentence if other programs held up this one; "" if not."""
        others, idle = self.count()
        cores = psutil.cpu_count() or 1
        if others < _BUSY_CORES or idle > _IDLE_FRAC * cores:
            return ""
        return f"Other programs used {others:.1f} of {cores} processors. Try on an idle machine: gains differ there."

    def _read(self) -> tuple[float, float, float, float]:
        times = psutil.cpu_times()._asdict()
        idle_s = times["idle"] + times.get("iowait", 0.0)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        guest_s = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # are in user and nice too
        own_s = sum(each.ru_utime + each.ru_stime for each in used)
        return time.monotonic(), own_s, sum(times.values()) - guest_s - idle_s, idle_s
