"""One line on the stderr of the training, written by another process while the training stands still.

A process that opens the file of stderr again gets a position of its own, so the training's next output would overwrite
the line. If stderr is a regular file, as in `python train.py > job.log 2>&1`, the sidecar therefore inherits a
duplicate that shares the position.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_LONGEST = 2_000
"""Most bytes of a line: a pipe takes a write up to this size as a whole, or nothing."""


def describe_terminal() -> list[int]:
    """Return device and inode of this process's stderr, by which others recognize it; empty without one."""
    try:
        if sys.__stderr__ is None or sys.__stderr__.fileno() != _STDERR:
            return []
        found = os.fstat(_STDERR)
    except (OSError, ValueError):
        return []
    return _identify(found)


@contextmanager
def lend_log_file() -> Iterator[tuple[int, ...]]:
    """Yield a duplicate of stderr for another process if it is a file: a pipe's reader would wait for that process."""
    lent: list[int] = []
    with suppress(OSError):
        if describe_terminal() and stat.S_ISREG(os.fstat(_STDERR).st_mode):
            lent.append(fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1))
    try:
        yield tuple(lent)
    finally:
        for descriptor in lent:
            os.close(descriptor)


def say_on_terminal(pid: int, terminal: list[int], text: str) -> bool:
    """Write a line to the stderr of process `pid`. Return False if stderr is missing or full, or is not `terminal`, the
    result of `describe_terminal` in that process.

    An inherited duplicate of stderr is used if there is one. Otherwise stderr is opened for this line only: an open
    descriptor would keep a pipe open after the training's end, and the pipe's reader would wait. The write never waits
    for a reader, and never makes a terminal the controlling one of this process.
    """
    line = "".join(letter if letter.isprintable() else " " for letter in text)[:_LONGEST] + "\n"
    path = f"/proc/{pid}/fd/{_STDERR}"
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        if _identify(os.stat(path)) != terminal:
            return False
        lent = _find_lent(terminal)
        target = os.open(path, flags) if lent is None else lent
    except OSError:
        return False
    try:
        found = os.fstat(target)
        if _identify(found) != terminal or not _takes_text(found.st_mode):
            return False
        os.write(target, line.encode("utf-8", "replace"))
        return True
    except OSError:
        return False
    finally:
        if lent is None:
            os.close(target)


def _identify(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino]


def _find_lent(terminal: list[int]) -> int | None:
    """Return the descriptor of this process that is a duplicate of the training's stderr; None without one."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing is closed by now
            found = os.fstat(int(name))
            if _identify(found) == terminal and stat.S_ISREG(found.st_mode):
                return int(name)
    return None


def _takes_text(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISCHR(mode)
