"""The outlet to which this process writes its marks: a log in the run's `events/`. None exists if nothing is recorded.

A forked child inherits the outlet and opens a log of its own. A spawned child finds the run through its environment.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from collector.format.schema.reading import read_small_text
from collector.ring.mark_log import MarkLog

EVENTS_VARIABLE = "STEPSCOPE_EVENTS"
_PAUSED = -2
_log = logging.getLogger("stepscope")


class DeviceClock(Protocol):
    """A timer of ranges on the device, which makes them NVTX ranges too. `open` begins a range and returns its mark;
    `close` ends it, and its device time is logged later; `drop` ends it without a time.
    """

    def open(self, name: str) -> object: ...

    def close(self, mark: object, range_id: int) -> None: ...

    def drop(self, mark: object) -> None: ...


class Trainer(Protocol):
    """A writer of marked input and batches to the log of the training thread. Called on that thread only."""

    def fetch_starts(self) -> bool: ...

    def fetch_ends(self) -> None: ...

    def read_starts(self) -> None: ...

    def read_ends(self) -> None: ...

    def batch_starts(self) -> bool: ...

    def batch_ends(self, counts: bool = True) -> None: ...

    def iterate(self, iterable: Iterable[Any], name: str) -> Iterator[Any]: ...


class Outlet:
    """The destination of marks (ranges, stages, queue depths). `step` returns the current step, -1 if unknown.
    `thread[0]` is the id of the training thread, -2 during a pause; `thread` is None in a child process.

    `open_ranges` maps an id to a range that has not ended.
    """

    def __init__(self, events: Path, thread: list[int] | None = None, step: Callable[[], int] | None = None) -> None:
        self.events = events
        self.device: DeviceClock | None = None
        self.trainer: Trainer | None = None
        self.step: Callable[[], int] = step or _no_step
        self.with_pipeline = True
        self._thread = thread
        self._opened: MarkLog | None = None
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self.open_ranges: dict[int, Any] = {}
        self._numbers: dict[tuple[str, int, int], int] = {}

    @property
    def is_on(self) -> bool:
        return self._thread is None or self._thread[0] != _PAUSED

    @property
    def takes_pipeline(self) -> bool:
        """Whether stages and queues are recorded now; the option `data_pipeline` switches them off."""
        return self.with_pipeline and self.is_on

    @property
    def is_training_thread(self) -> bool:
        return self._thread is not None and self._thread[0] == threading.get_ident()

    @property
    def log(self) -> MarkLog:
        """The log of this process, created at its first use. Raises OSError if there is no room for the log."""
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = MarkLog(self.events / f"marks-{os.getpid()}-{time.perf_counter_ns()}.ring")
        return self._opened

    def next_id(self) -> int:
        """Return a new number for a range. Ranges of a process are numbered from 0."""
        return next(self._ids)

    def next_item(self, stage: str, replica: int, thread: int) -> int:
        """Return a new number for an item. The items of each replica of a stage are numbered from 0. If `replica` is
        negative, each thread is a replica."""
        key = (stage, replica, thread if replica < 0 else 0)
        with self._lock:
            number = self._numbers[key] = self._numbers.get(key, -1) + 1
        return number

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def begin_child(self) -> None:
        """Prepare the inherited outlet in a process that was just forked: the process opens a log of its own at its
        first mark, and has no device, training thread or open range."""
        if self._opened is not None:
            self._opened.disown()
        self._opened = None
        self._lock = threading.Lock()
        self._thread = self.device = self.trainer = None
        self.step = _no_step
        self._ids = itertools.count()
        self._numbers, self.open_ranges = {}, {}


class Waiting(Outlet):
    """A placeholder for the outlet until the first mark. `then` is called before that mark is recorded.

    `behind` is the outlet that the placeholder hides, None if nothing is recorded before the call of `then`.
    """

    def __init__(self, then: Callable[[], None], behind: Outlet | None = None) -> None:
        super().__init__(Path())
        self.then = then
        self.behind = behind

    @property
    def is_on(self) -> bool:
        return False


current: Outlet | None = None
"""The outlet of this process, None while nothing is recorded. Every mark checks it first."""


def open_outlet(outlet: Outlet) -> None:
    """Send marks to this outlet from now on, including marks of children spawned later."""
    global current
    current = outlet
    os.environ[EVENTS_VARIABLE] = str(outlet.events)


def close_outlet(outlet: Outlet) -> None:
    """Close this outlet. Marks are dropped from now on, unless another outlet is the current one."""
    global current
    outlet.close()
    if current is outlet or (isinstance(current, Waiting) and current.behind is outlet):
        current = None
        os.environ.pop(EVENTS_VARIABLE, None)


def give_up(outlet: Outlet, error: Exception) -> None:
    """Drop all marks of this process from now on, because `outlet` failed, and log the error once."""
    global current
    if current is outlet:
        current = None
        _log.warning("stepscope: ranges, stages and queues are not recorded any more: %r", error)


def await_mark(then: Callable[[], None]) -> None:
    """Call `then` before the first mark of this process is recorded; `then` may open an outlet, and must not raise."""
    global current
    current = Waiting(then, current)


def stop_waiting() -> None:
    """Undo `await_mark`: send marks to the outlet of before, if any, without a call of `then`."""
    global current
    while isinstance(current, Waiting):
        current = current.behind


def begin(outlet: Outlet) -> Outlet | None:
    """Return the outlet for a mark that begins, None if marks are off now. For a `Waiting`, first call its `then`."""
    global current
    while isinstance(outlet, Waiting):
        if current is outlet:  # else another thread was first
            current = outlet.behind
            outlet.then()
        if current is None:
            return None
        outlet = current
    return outlet if outlet.is_on else None


def _no_step() -> int:
    return -1


def _find_inherited() -> Outlet | None:
    """Return an outlet to the run of the process that spawned this process; None if that run is not recording."""
    folder = os.environ.get(EVENTS_VARIABLE)
    if not folder:
        return None
    events = Path(folder)
    try:
        notes = json.loads(read_small_text(events / "notes.json"))
        is_finished, options = bool(notes.get("finished")), notes.get("options", {})
        with_pipeline = bool(options.get("data_pipeline", True))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    if is_finished:
        return None
    outlet = Outlet(events)
    outlet.with_pipeline = with_pipeline
    return outlet


def _begin_child() -> None:
    stop_waiting()
    if current is not None:
        current.begin_child()


os.register_at_fork(after_in_child=_begin_child)
current = _find_inherited()
