"""One line on the stderr of the training, written by another process while the training stands still."""

from __future__ import annotations

import os
import stat
import sys

_STDERR = 2
_LONGEST = 2_000
"""A pipe takes so much at once, or nothing."""


def describe_terminal() -> list[int]:
    """Return what tells the stderr of this process from any other file, empty where Python has none."""
    try:
        if sys.__stderr__ is None or sys.__stderr__.fileno() != _STDERR:
            return []
        found = os.fstat(_STDERR)
    except (OSError, ValueError):
        return []
    return [found.st_dev, found.st_ino]


def say_on_terminal(pid: int, terminal: list[int], text: str) -> bool:
    """Write a line to the stderr of a process; False where it has none, another file in its place, or it is full.

    The file is opened for this line alone: a descriptor that this process kept would hold a pipe open after the
    training's end, and whoever reads it would wait. Nothing of it waits for a reader, and no terminal is taken over.
    """
    line = "".join(letter if letter.isprintable() else " " for letter in text)[:_LONGEST] + "\n"
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        target = os.open(f"/proc/{pid}/fd/{_STDERR}", flags)
    except OSError:
        return False
    try:
        found = os.fstat(target)
        if [found.st_dev, found.st_ino] != terminal or not _takes_text(found.st_mode):
            return False
        os.write(target, line.encode("utf-8", "replace"))
        return True
    except OSError:
        return False
    finally:
        os.close(target)


def _takes_text(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISCHR(mode)
