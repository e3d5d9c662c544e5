"""Which processes may be read: the training and what it has started. The system says which they are, no file does."""

from __future__ import annotations

import os
from typing import NamedTuple

_MOST_GENERATIONS = 64
_PARENT, _STARTED = 1, 19
"""Fields of /proc/<pid>/stat, counted from behind the name, which may hold anything."""


class ForeignError(Exception):
    """A process is none of the training."""


class _Origin(NamedTuple):
    parent: int
    started: int


class Family:
    """A process, which is this one or its parent, and all that descend from it."""

    def __init__(self, pid: int) -> None:
        """ForeignError if it is neither this process nor its parent, so that its number may be another one's by now."""
        try:
            self._started = _read_origin(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)).started
        except OSError as error:
            raise ForeignError(f"{pid} cannot be looked at: {error}") from None
        if pid not in (os.getpid(), os.getppid()):
            raise ForeignError(f"{pid} has not started this process")
        self.pid = pid

    def open_process(self, pid: int) -> int:
        """Return a descriptor of the folder of a process in /proc; it leads to no other that gets its number later.

        ForeignError for a process that is none of the family, PermissionError for one of another user, OSError for one
        that is gone.
        """
        process = os.open(f"/proc/{pid:d}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not self._holds(pid, _read_origin(os.dup(process))):
                raise ForeignError(f"{pid} does not descend from {self.pid}")
            if os.fstat(process).st_uid != os.geteuid():
                raise PermissionError(f"{pid} belongs to another user")
        except BaseException:
            os.close(process)
            raise
        return process

    def _holds(self, pid: int, origin: _Origin) -> bool:
        for _ in range(_MOST_GENERATIONS):
            if pid == self.pid:
                return origin.started == self._started
            pid, child = origin.parent, origin
            if not pid:
                return False
            origin = _read_origin(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if origin.started > child.started:
                return False  # the parent is gone, and its number another one's
        return False


def _read_origin(process: int) -> _Origin:
    """Read of which process a process is the child, and when it started, in ticks. Closes the descriptor."""
    try:
        stat = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    finally:
        os.close(process)
    with os.fdopen(stat, "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return _Origin(int(fields[_PARENT]), int(fields[_STARTED]))
