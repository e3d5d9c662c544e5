"""Log how the training thread gets input without a DataLoader: queues, iterables and reading that the script marks."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from collector.context.loaders import count_samples
from collector.context.signals import SignalContext
from collector.edge import hide_frame, log_failure, unseen
from collector.ring.codes import (
    BATCH,
    BATCH_END,
    BATCH_START,
    FETCH_END,
    FETCH_START,
    FETCH_STOP,
    LOADER,
    LOADER_READY,
    LOADER_START,
    NOT_COUNTED,
    OWN_QUEUE,
    READ_END,
    READ_START,
    SAMPLES,
)
from collector.ring.packing import pack_fetch

MOST_ITEMS = 256
"""Number of items that are timed. Later items hardly differ, and reading processor clocks costs system calls."""
_TOLD_AT = (4, 16, 64, MOST_ITEMS)
COMPUTING_FRAC = 0.5
"""Share of processor time in `next()` from which the training thread makes the items itself."""
_BESIDE_FRAC = 0.1
_IDLE_THREADS = ("TMonitor", "_EventLoggerThread")
"""Class names of threads of progress bars and loggers, which make no items."""


class Source:
    """A watched iterable, identified by its name. An iterable made anew for every epoch is still one source.

    `description` has the fields of `schema.manifest.Loader`; it is empty before the first epoch.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.making = Making()
        self.description: dict[str, Any] = {}


class TrainingInput:
    """The writer of marked input and batches to the log. Its methods are called on the training thread only."""

    def __init__(self, context: SignalContext) -> None:
        self._context = context
        self._log = context.log
        self._steps = context.steps
        self._sources: dict[str, Source] = {}
        self._readings = 0
        self._in_batch = self._is_marked = False

    def fetch_starts(self) -> bool:
        """Log the request for an item of a watched queue and return True. Before the first backward or update of the
        run, log nothing and return False.
        """
        if not self._steps.has_trained:
            return False
        self._steps.fetch_starts()
        self._log.write(LOADER, OWN_QUEUE)
        self._write(FETCH_START)
        return True

    def fetch_ends(self) -> None:
        self._write(FETCH_END)

    def read_starts(self) -> None:
        """Log the start of reading, which is data wait anywhere in a step and ends no step. Nested readings are one."""
        self._readings += 1
        if self._readings == 1:
            self._write(READ_START)

    def read_ends(self) -> None:
        self._readings -= 1
        if not self._readings and self._log.is_mine():
            self._write(READ_END)

    def batch_starts(self) -> bool:
        """Begin a batch of the script in a loop of inference; return False if a batch is open or the loop trains.

        Nothing is logged if a loader feeds the loop, because its fetches already mark the batches.
        """
        steps, calls = self._steps, self._context.calls
        if self._in_batch or steps.has_trained:
            return False
        self._in_batch = self._context.has_inferred = True
        self._is_marked = not steps.fetches
        if self._is_marked:
            calls.in_batch = calls.has_marks = True
            self._write(BATCH_START)
        return True

    def batch_ends(self, counts: bool = True) -> None:
        """Log the end of the open batch. With `counts` False, the batch becomes no batch of the run."""
        self._in_batch = False
        if not self._log.is_mine():
            return
        if not counts:
            self._log.write(NOT_COUNTED, 0)
        if self._is_marked:
            self._context.calls.in_batch = False
            self._write(BATCH_END)
            if counts:
                self._context.calls.end()

    def iterate(self, iterable: Iterable[Any], name: str) -> Iterator[Any]:
        """Begin an epoch of the watched iterable `name`; return an iterator over it that logs each fetch of an item."""
        source = self._sources.setdefault(name, Source(name))
        loaders = self._context.loaders
        epoch, number = loaders.begin_epoch(source), loaders.number(source)
        if epoch == 1:
            source.description = _describe_source(number, name, iterable)
            self._context.add_loader(source.description)
        self._steps.fetch_starts()
        self._write(LOADER_START)
        try:
            with unseen:
                return _Fetches(self, iter(iterable), pack_fetch(epoch, number), source)
        finally:
            self._write(LOADER_READY)

    def fetch(self, place: int, batch: int, advance: Callable[[], Any]) -> tuple[Any, bool]:
        """Call `advance` to fetch the batch with number `batch`, and log the fetch. Return its result, and whether
        `advance` used a DataLoader. `place` packs loader and epoch.
        """
        log, steps = self._log, self._steps
        steps.fetch_starts(place)
        seen = steps.fetches
        log.write(LOADER, place)
        self._write(FETCH_START)
        try:
            item = advance()
        except BaseException as error:
            self._write(FETCH_STOP)
            if isinstance(error, StopIteration):
                steps.fetch_stops()
            hide_frame(error)
            raise
        log.write(BATCH, batch)
        self._write(FETCH_END)
        log.write(SAMPLES, count_samples(item))
        return item, steps.fetches != seen

    def tell(self, source: Source) -> None:
        """Write to the notes what `source` is and how its items are made."""
        self._context.add_loader({**source.description, **source.making.describe()})

    def read(self, advance: Callable[[], Any]) -> Any:
        """Call `advance`, log the call as reading, and return its result. Fetches from a DataLoader inside it still
        count as fetches of the step.
        """
        self.read_starts()
        try:
            return advance()
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            self.read_ends()

    def is_recording(self) -> bool:
        """Return whether the calling thread is the training thread, and recording is on."""
        return self._log.is_mine()

    def _write(self, code: int) -> None:
        self._log.write(code, perf_counter_ns())


class _Fetches:
    def __init__(self, training: TrainingInput, iterator: Iterator[Any], place: int, source: Source) -> None:
        self._training = training
        self._advance = iterator.__next__
        self._source = source
        self._place = place
        self._batch = 0
        self._has_loader = False

    def __iter__(self) -> _Fetches:
        return self

    def __next__(self) -> Any:
        training = self._training
        try:
            if not training.is_recording():
                return self._advance()
            if self._has_loader:
                return training.read(self._advance)
            making = self._source.making
            before = making.start() if making.is_on else None
            item, self._has_loader = training.fetch(self._place, self._batch, self._advance)
            if before is not None and making.stop(before):
                training.tell(self._source)
        except BaseException as error:
            hide_frame(error)
            raise
        self._batch += 1
        return item


def _describe_source(number: int, name: str, iterable: Any) -> dict[str, Any]:
    length = None
    if hasattr(type(iterable), "__len__"):
        with log_failure("the length of watched input is unknown", level=logging.DEBUG):
            length = len(iterable)
    return {
        "id": number,
        "dataset": name,
        "style": "iterable",
        "watched": True,
        "num_workers": 0,
        "prefetch_factor": None,
        "length_batches": length if isinstance(length, int) else None,
    }


class Making:
    """Sums of wall, thread and process time in `next()` over the first `MOST_ITEMS` items of a watched iterable. They
    tell whether the training thread makes the items itself. Called on the training thread only."""

    __slots__ = ("_beside_ns", "_cpu_ns", "_has_others", "_wall_ns", "items")

    def __init__(self) -> None:
        self.items = self._wall_ns = self._cpu_ns = self._beside_ns = 0
        self._has_others = False

    @property
    def is_on(self) -> bool:
        return self.items < MOST_ITEMS

    def start(self) -> tuple[int, int, int]:
        """Return the readings of the wall, thread and process clocks before an item."""
        return perf_counter_ns(), thread_time_ns(), process_time_ns()

    def stop(self, before: tuple[int, int, int]) -> bool:
        """Add an item that began at the readings `before`. Return whether the sums are to be written to the notes."""
        wall_ns, cpu_ns = perf_counter_ns() - before[0], thread_time_ns() - before[1]
        self._wall_ns += wall_ns
        self._cpu_ns += min(cpu_ns, wall_ns)
        self._beside_ns += max(process_time_ns() - before[2] - cpu_ns, 0)
        self.items += 1
        if self.items not in _TOLD_AT:
            return False
        self._has_others = self._has_others or _has_others()
        return True

    def describe(self) -> dict[str, Any]:
        """Return `cpu_frac` and `reads_ahead` of `schema.manifest.Loader`; {} before the first item."""
        if not self.items or not self._wall_ns:
            return {}
        cpu_frac = self._cpu_ns / self._wall_ns
        beside = self._has_others or self._beside_ns > _BESIDE_FRAC * self._wall_ns
        return {"cpu_frac": round(cpu_frac, 3), "reads_ahead": bool(cpu_frac < COMPUTING_FRAC and beside)}


def _has_others() -> bool:
    """Return whether there is another Python thread, or a multiprocessing child process, that may make the items."""
    here = (threading.main_thread(), threading.current_thread())
    if any(each not in here and type(each).__name__ not in _IDLE_THREADS for each in threading.enumerate()):
        return True
    processes = sys.modules.get("multiprocessing.process")
    return bool(processes is not None and processes.active_children())
