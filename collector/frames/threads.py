"""Read from the system whether a thread of another process sleeps, and how many threads of that process run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

MOST_THREADS = 64
"""Threads beyond which a process is not looked at: each costs some 4 µs."""
LIST_AGAIN = 50
"""Looks after which threads are listed again, because they come and go."""


class Seen(NamedTuple):
    """A look at a thread and its process at one moment.

    `asleep` is whether the thread waited for something other than a processor. `running` is the number of threads of
    the process, the watched one included, that ran or waited for a processor.
    """

    asleep: bool
    running: int


class Threads:
    """The threads of process `pid`. `thread` is the system's number of the one to watch."""

    def __init__(self, pid: int, thread: int, proc: Path = Path("/proc")) -> None:
        self._tasks = proc / str(pid) / "task"
        self._thread = str(thread)
        self._files: dict[str, int] = {}
        self._looks = 0

    def __del__(self) -> None:
        for thread in [*self._files]:
            self._drop(thread)

    def look(self) -> Seen | None:
        """Return whether the watched thread sleeps and how many run; None with too many threads or an unknown one."""
        if self._looks % LIST_AGAIN == 0:
            self._list()
        self._looks += 1
        states = {thread: self._read_state(thread) for thread in [*self._files]}
        state = states.get(self._thread)
        return Seen(state in (b"S", b"D"), [*states.values()].count(b"R")) if state else None

    def is_running(self, thread: int) -> bool:
        """Return whether a thread runs or waits for a processor, False if it is unknown."""
        name = str(thread)
        if name in self._files:
            return self._read_state(name) == b"R"
        try:
            text = (self._tasks / name / "stat").read_bytes()
        except OSError:
            return False
        return _find_state(text) == b"R"

    def _list(self) -> None:
        try:
            threads = set(os.listdir(self._tasks))
        except OSError:
            threads = set()
        wanted = threads if len(threads) <= MOST_THREADS else set()
        for gone in self._files.keys() - wanted:
            self._drop(gone)
        for thread in wanted - self._files.keys():
            with contextlib.suppress(OSError):
                self._files[thread] = os.open(self._tasks / thread / "stat", os.O_RDONLY | os.O_CLOEXEC)

    def _read_state(self, thread: str) -> bytes:
        try:
            text = os.pread(self._files[thread], 256, 0)
        except OSError:
            self._drop(thread)
            return b""
        return _find_state(text)

    def _drop(self, thread: str) -> None:
        with contextlib.suppress(OSError):
            os.close(self._files.pop(thread))


def _find_state(text: bytes) -> bytes:
    return text.rpartition(b") ")[2][:1]  # the name before may hold anything
