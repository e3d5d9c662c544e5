"""When this process started and when it imported torch: the part of a start-up that no sampled stack shows.

A second recording in a process, and one in an interactive session, begin when they are made: hours may lie between
them and the start of the process.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOADED_UNIX_NS = time.time_ns()
_torch_unix_ns: list[int] = []
_recorded_in: list[int] = []
_FAULTS_OF_CHILDREN, _STARTED = 8, 19
"""Fields of /proc/<pid>/stat, counted after the name: page faults of ended children, and the start of the process in
clock ticks since boot."""


@contextmanager
def timing_torch() -> Iterator[None]:
    """Note when the body began and ended, if torch is imported in it."""
    was_there, began = "torch" in sys.modules, time.time_ns()
    yield
    if not was_there and "torch" in sys.modules:
        note_torch(began, time.time_ns())


def note_torch(began_unix_ns: int, ended_unix_ns: int) -> None:
    _torch_unix_ns[:] = began_unix_ns, ended_unix_ns


def note_recorded() -> None:
    """Note that a recording of this process has recorded something."""
    _recorded_in[:] = [os.getpid()]


def describe_start(began_unix_ns: int) -> dict[str, Any]:
    """Return the fact `start_up` of a recording that began at `began_unix_ns`, in ns of Unix time."""
    is_later = _recorded_in == [os.getpid()] or hasattr(sys, "ps1") or "ipykernel" in sys.modules
    started = None if is_later else _find_process_start()
    since = began_unix_ns if is_later else min(started or _LOADED_UNIX_NS, began_unix_ns)
    torch = [*_torch_unix_ns] if _torch_unix_ns and _torch_unix_ns[0] >= since else []
    return {
        "since_unix_ns": since,
        "is_process": started is not None,
        "began_unix_ns": began_unix_ns,
        "torch_unix_ns": torch,
    }


def _find_process_start() -> int | None:
    """Return when this process started, in ns of Unix time; None where the system does not show it.

    None also if other programs ran as its children: it may be a shell that has become Python, and has worked before.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK")
        has_worked = int(fields[_FAULTS_OF_CHILDREN]) > 0
    except (OSError, ValueError, LookupError, AttributeError):  # not on Linux
        return None
    return None if has_worked or age_s < 0 else time.time_ns() - int(age_s * 1e9)
