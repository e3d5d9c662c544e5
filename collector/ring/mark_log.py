"""The contents of a mark log: the ranges, stages and queues that a script names itself, one ring per process.

`events/marks-….ring`. Every record begins with its kind; times are perf_counter_ns readings, which on Linux every
process of the machine shares.

    RANGE   a range that was closed
    DEVICE  the device time of a range, known some time after it was closed
    DROP    a range to be left out, with all ranges opened inside of it
    STAGE   an interval of one kind of time of a stage replica
    QUEUE   the depth of a queue when an item was requested
    NAME    a name, before the first record that uses it; names inside of ranges form paths
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from collector.ring.records import RecordWriter, encode_text

RANGE, DEVICE, DROP, STAGE, QUEUE, NAME = 1, 2, 3, 4, 5, 6
FIELDS = 15
CAPACITY = 1 << 15
RING_PATTERN = "marks-*.ring"
UNKNOWN = -1
NO_PARENT = -1

FAILED, DEVICE_LATER, DEVICE_UNKNOWN, ON_TRAINING_THREAD, LEFT_OPEN = 1, 2, 4, 8, 16
"""Flags of a range: it raised, its device time comes later or is unknown, it was on the training thread, it was not
closed."""
KINDS = ("work", "input_wait", "output_wait")

MOST_NAMES = 10_000
OTHER = "(other)"
"""Name that replaces further names when a process has used too many different names."""

_TEXT_WORDS = FIELDS - 3


class Range(NamedTuple):
    """A closed range. `name` identifies the whole path. -1 means no parent, no batch, no items, no step."""

    id: int
    parent: int
    name: int
    thread: int
    start_ns: int
    duration_ns: int
    batch: int
    items: int
    step: int
    flags: int


class DeviceTime(NamedTuple):
    id: int
    device_ns: int


class Drop(NamedTuple):
    id: int


class StageSpan(NamedTuple):
    """An interval of a stage. `name` identifies the stage, `number` the item. `kind` is an index into KINDS, `queue` a
    name or -1; `replica` -1 means one per thread.
    """

    name: int
    replica: int
    thread: int
    kind: int
    number: int
    start_ns: int
    duration_ns: int
    cpu_ns: int
    items: int
    bytes: int
    queue: int


class QueueDepth(NamedTuple):
    """The depth of a queue at a request. `name` identifies the queue. A capacity of 0 means no limit."""

    name: int
    at_ns: int
    depth: int
    capacity: int
    step: int


class MarkLog:
    """The writer of a mark log; any thread of the process may write."""

    def __init__(self, path: Path) -> None:
        self._ring = RecordWriter(path, FIELDS, CAPACITY)
        self._append = self._ring.append
        self._lock = threading.Lock()
        self._count = 0
        self._names: dict[tuple[int, str], int] = {}
        self._texts: list[tuple[int, str]] = []
        self._written_at: list[int] = []
        self.is_open = True

    def add(self, kind: int, record: Sequence[int]) -> None:
        """Write a record; do nothing once the log is closed."""
        if self.is_open:
            with self._lock:
                self._count += 1
                self._append(kind, *record)

    def name(self, text: str, parent: int = NO_PARENT) -> int:
        """Return the number of a name in the path with the number `parent`. Write the name to the log, unless it was
        written so recently that no reader can have lost it.
        """
        number = self._names.get((parent, text))
        if number is None or self._is_stale(number):
            with self._lock:
                return self._write_name(text, parent)
        return number

    def close(self) -> None:
        """Mark the log as complete; later records are dropped."""
        self.is_open = False
        self._ring.close()

    def disown(self) -> None:
        self.is_open = False

    def _write_name(self, text: str, parent: int) -> int:
        number = self._names.get((parent, text))
        if number is None:
            if len(self._texts) >= MOST_NAMES:
                text, parent = OTHER, NO_PARENT
            number = self._names.setdefault((parent, text), len(self._texts))
            if number == len(self._texts):
                self._texts.append((parent, text))
                self._written_at.append(-CAPACITY)
        # Written again now and then, with what stands above it: a reader that came late has lost the first ones.
        at = number
        while at != NO_PARENT and self.is_open and self._is_stale(at):
            above, text = self._texts[at]
            self._count += 1
            self._written_at[at] = self._count
            self._append(NAME, at, above, *encode_text(text, _TEXT_WORDS))
            at = above
        return number

    def _is_stale(self, number: int) -> bool:
        return self._count - self._written_at[number] > CAPACITY // 2
