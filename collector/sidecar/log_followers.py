"""Find and follow the logs that the processes of a rank write, for the assemblers. Each log is read until its writer
has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import psutil

from collector.format.schema.removal import remove_file
from collector.ring.records import RecordReader, open_reader


class Log(Protocol):
    ring: RecordReader

    def checkpoint(self) -> dict[str, Any]:
        """Return the state for the next reader: `position`, at which the next read begins, and other values."""


LogT = TypeVar("LogT", bound=Log)
Make = Callable[[RecordReader, dict[str, Any] | None], LogT]


class LogFollower(Generic[LogT]):
    """A follower of every log of one kind. A log that is read to its end is removed once its rows are on disk.

    `pattern` matches the file names of the kind, `fields` is the number of fields of a record. `make` builds a log from
    its ring and the `checkpoint` of an earlier process, None without one. `number` gives the order of logs that are
    found at the same time; by default they are in order of their names.
    """

    def __init__(
        self, events: Path, pattern: str, fields: int, make: Make[LogT], number: Callable[[Path], int] | None = None
    ) -> None:
        self._events = events
        self._pattern = pattern
        self._fields = fields
        self._make = make
        self._number = number
        self._followed: dict[str, LogT] = {}
        self._finished: dict[str, LogT] = {}
        self._saved: dict[str, Any] = {}
        self._lost = 0

    @property
    def lost(self) -> int:
        return self._lost + sum(log.ring.lost for log in self._followed.values())

    def follow(self) -> Iterator[LogT]:
        """Yield each log that may have grown. The caller reads each log before it takes the next one."""
        self._find()
        for name, log in list(self._followed.items()):
            # Asked before the last read: everything that the process wrote before its end can then be read.
            has_ended = log.ring.closed or not psutil.pid_exists(log.ring.pid)
            yield log
            if has_ended:
                self._finished[name] = self._followed.pop(name)
                self._lost += log.ring.lost

    def checkpoint(self) -> dict[str, Any]:
        return {name: log.checkpoint() for name, log in (self._followed | self._finished).items()}

    def restore(self, saved: dict[str, Any]) -> None:
        self._saved = saved

    def release(self) -> None:
        for log in self._finished.values():
            remove_file(log.ring.path)
        self._finished.clear()

    def _find(self) -> None:
        for path in sorted(self._events.glob(self._pattern), key=self._number):
            if path.name in self._followed or path.name in self._finished:
                continue
            saved = self._saved.pop(path.name, None)
            ring = open_reader(path, saved["position"] if saved else 0)
            if ring is not None and ring.fields == self._fields:
                self._followed[path.name] = self._make(ring, saved)
