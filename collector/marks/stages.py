"""Record the stages of the user's own pipeline: the work and the waits of each replica, item by item."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns, thread_time_ns
from types import TracebackType
from typing import NamedTuple

from collector.format.schema.errors import UsageError
from collector.marks import outlet as outlets
from collector.marks.outlet import Outlet, Trainer
from collector.ring.mark_log import STAGE, UNKNOWN, MarkLog, StageSpan

WORK, INPUT_WAIT, OUTPUT_WAIT = 0, 1, 2
_MOST_WAITING = 256
INPUT_STAGES = frozenset(("read", "load", "fetch", "decode", "transform", "augment", "collate", "input"))
"""Names of stages whose time on the training thread is data wait."""


class Wait(NamedTuple):
    """A stretch of a stage's time: `kind` is WORK, INPUT_WAIT or OUTPUT_WAIT. `queue` is the name of the watched queue
    that the stage waits for, "" if none."""

    kind: int
    queue: str
    start_ns: int
    end_ns: int


class _Replica:
    __slots__ = ("log", "name", "number", "outlet", "replica", "thread")

    def __init__(self, outlet: Outlet, name: str, replica: int) -> None:
        self.outlet = outlet
        self.log: MarkLog = outlet.log
        self.name = self.log.name(name)
        self.replica = replica
        self.thread = _local.thread
        self.number = outlet.next_item(name, replica, self.thread)

    def write(self, span: Wait, cpu_ns: int = UNKNOWN, items: int = 0, size: int = 0) -> None:
        queue = self.log.name(span.queue) if span.queue else UNKNOWN
        place = (self.name, self.replica, self.thread, span.kind, self.number)
        took_ns = span.end_ns - span.start_ns
        self.log.add(STAGE, StageSpan(*place, span.start_ns, took_ns, cpu_ns, items, size, queue))


class Stage:
    """The work of one stage as a block. Inside the block, set `items` if it works on another number of items than the
    given one, and `bytes` if it should be recorded."""

    __slots__ = ("_cpu_ns", "_from_ns", "_name", "_outer", "_reads_for", "_replica", "_wanted", "bytes", "items")

    def __init__(self, name: str, replica: int | None = None, items: int = 1) -> None:
        self._name = name
        self._wanted = UNKNOWN if replica is None else replica
        self._replica: _Replica | None = None
        self._outer: Stage | None = None
        self._reads_for: Trainer | None = None
        self.items = items
        self.bytes = 0

    def __enter__(self) -> Stage:
        outlet = outlets.current
        if outlet is not None and not outlet.is_on:
            outlet = outlets.begin(outlet)
        if outlet is None:
            return self
        if self._name in INPUT_STAGES and outlet.trainer is not None and outlet.is_training_thread:
            self._reads_for = outlet.trainer
            self._reads_for.read_starts()
        if not outlet.takes_pipeline:
            return self
        try:
            self._replica = _Replica(outlet, self._name, self._wanted)
        except (OSError, RuntimeError) as error:
            outlets.give_up(outlet, error)
            return self
        waits = _local.waits_of(outlet)
        while waits:
            self._replica.write(waits.popleft())
        self._outer = _local.stage
        if self._outer is not None:
            self._outer._pause(perf_counter_ns())
        _local.stage = self
        self._go_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._reads_for is not None:
            self._reads_for.read_ends()
            self._reads_for = None
        if self._replica is None:
            return
        # A stretch of no length still carries the items, which count once.
        self._pause(perf_counter_ns(), self.items, self.bytes)
        _local.last = self._replica
        _local.stage, self._replica = self._outer, None
        if self._outer is not None:
            self._outer._go_on()

    def wait_input(self) -> AbstractContextManager[None]:
        """Return a block whose time is a wait for the stage's input. Queues of `stepscope.queue` need no such block."""
        return self._wait(INPUT_WAIT)

    def wait_output(self) -> AbstractContextManager[None]:
        """Return a block whose time is a wait until the stage's output is taken."""
        return self._wait(OUTPUT_WAIT)

    def _wait(self, kind: int) -> AbstractContextManager[None]:
        return nullcontext() if self._replica is None else _TimedWait(self, kind)

    def _add_wait(self, wait: Wait) -> None:
        """Write a wait between two rows of work: one row ends at the start of the wait, the next begins at its end."""
        if self._replica is not None:
            self._pause(wait.start_ns)
            self._replica.write(wait)
            self._go_on()

    def _pause(self, at_ns: int, items: int = 0, size: int = 0) -> None:
        if self._replica is not None and (items or at_ns > self._from_ns):
            work = Wait(WORK, "", self._from_ns, at_ns)
            self._replica.write(work, thread_time_ns() - self._cpu_ns, items, size)

    def _go_on(self) -> None:
        self._cpu_ns = thread_time_ns()
        self._from_ns = perf_counter_ns()


class _TimedWait:
    """A block whose time is a wait of a stage.

    The block is no generator: contextlib sets the traceback of an error, and the user's class of error may refuse that.
    """

    __slots__ = ("_kind", "_stage", "_start_ns")

    def __init__(self, of: Stage, kind: int) -> None:
        self._stage = of
        self._kind = kind

    def __enter__(self) -> None:
        self._start_ns = perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stage._add_wait(Wait(self._kind, "", self._start_ns, perf_counter_ns()))


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.stage: Stage | None = None
        self.last: _Replica | None = None
        self._outlet: Outlet | None = None
        self._waits: deque[Wait] = deque(maxlen=_MOST_WAITING)

    def waits_of(self, outlet: Outlet) -> deque[Wait]:
        """Return this thread's waits for input that belong to no stage yet. Those of an earlier run are dropped."""
        if outlet is not self._outlet:
            self._outlet = outlet
            self._waits.clear()
        return self._waits


_local = _Local()


def stage(name: str, replica: int | None = None, items: int = 1) -> Stage:
    """Mark the work of one stage of your own pipeline on one item, or on `items` items.

    `replica` numbers the threads or processes that run the same stage; without it each thread is a replica. Waits on
    queues watched by `stepscope.queue` are not work: a `get` before or inside the block waits for input, a `put` inside
    or after the block waits for output. On the training thread, the stages read, load, fetch, decode, transform,
    augment, collate and input are data wait of the step. Raise UsageError if the name is no text, or the replica is no
    number from 0 on.

    >>> for path in iter(paths.get, None):
    ...     with stepscope.stage("decode", replica=i):
    ...         image = decode(path)
    ...     images.put(image)
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"stage() takes the name of a stage, not {name!r}")
    if replica is not None and (isinstance(replica, bool) or not isinstance(replica, int) or replica < 0):
        raise UsageError(f"stage({name!r}): replica takes a number from 0 on, not {replica!r}")
    return Stage(name, replica, items)


def add_wait(outlet: Outlet, wait: Wait) -> None:
    """Add a wait on a queue to the stage that is open on this thread.

    Without an open stage, a wait for output belongs to the thread's last stage, a wait for input to its next stage.
    """
    if _local.stage is not None:
        _local.stage._add_wait(wait)
    elif wait.kind == OUTPUT_WAIT:
        last = _local.last
        if last is not None and last.log.is_open:
            last.write(wait)
    else:
        # A thread that takes from a queue and never runs a stage is no stage of the pipeline.
        _local.waits_of(outlet).append(wait)


def _begin_child() -> None:
    """Forget the stages of the parent in a process that was just forked."""
    _local.__dict__.clear()
    _local.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_begin_child)
