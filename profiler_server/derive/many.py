"""A small result for each rank of a very large run, computed in the background and kept on disk.

If many results are missing, several processes share the ranks. A page shows the results that are ready. Only a rank
that changed is read again. This module knows nothing about the content of a result. It only knows that a result depends
on a rank's files, and on a number that is the same for the whole run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Generic, TypeVar

from collector.edge import Edge
from collector.format.run import RankRun, Run
from collector.format.schema.errors import TraceError
from collector.format.stored_files import LENDERS
from collector.traces.workers import Here, Processes, StoppedError, Workers, count_cores, count_processes
from profiler_server.derive.background import note_provisional
from profiler_server.derive.derived import Asked, derived
from profiler_server.derive.stamps import LOOK_AGAIN_S, stamp_ranks
from profiler_server.derive.store import Store, find_store

PATIENCE_S = 0.7
"""Seconds that a page waits for a first reading. Results that are on disk arrive within that time."""
REST = 3.0
"""If the files of a run keep changing, the run is read again after this many times its last reading time."""
RANKS_PER_TASK = 16
ALONE_RANKS = 400
"""The number of ranks that this process can read while other processes start."""
READER_BYTES = 250 << 20
"""Bytes of memory that a reading process may need."""
MOST_KILLERS = 3
"""Ranks whose reading may kill a process before the remaining ranks are given up."""
KILLED = "Reading it was given up: the processes that read it were killed, such as for want of memory."
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Ranks of a run that one process reads one by one. Each result depends on the rank's files and on `number`."""

    run_path: Path
    ranks: tuple[int, ...]
    number: int


@dataclass(frozen=True)
class SoFar(Generic[T]):
    """The ready results in rank order, of `total` wanted ranks. `is_whole` means that every rank has a result,
    possibly one of files that have changed since."""

    results: tuple[T, ...]
    total: int
    is_whole: bool


@dataclass
class _Look(Generic[T]):
    """The state of reading one run.

    `known` are the results of the last full reading, and `stamps` the stamps of the files that were read; both are None
    before. `reading` maps a rank to its result in the unfinished reading. `prepared` is the value of `known` for which
    `Wanted.prepare` was last called. `is_live` is true while a rank records. The run is then read again from the time
    `again_s` on even if no file has changed, because a process that dies changes no file.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    stamps: Hashable = None
    known: tuple[T, ...] | None = None
    prepared: tuple[T, ...] | None = None
    reading: dict[int, T] = field(default_factory=dict)
    is_live: bool = False
    again_s: float = 0.0


@dataclass(frozen=True)
class Wanted(Generic[T]):
    """The ranks of a run whose results are wanted. Each result depends on the rank's files and on `number`.

    `prepare` gets the results of all ranks once they are read. It runs in the background, and computes further
    results that a page needs.
    """

    run: Run
    ranks: Sequence[int]
    number: int
    prepare: Callable[[tuple[T, ...]], None] = lambda results: None

    @property
    def stamps(self) -> Hashable:
        return tuple(self.ranks), stamp_ranks(self.run.path, self.ranks), self.number


@dataclass(frozen=True)
class Reading(Generic[T]):
    """The functions that read a rank.

    `compute` returns the rank's result, given `Wanted.number`. `explain` returns the result of an unreadable rank,
    given the reason. `is_live` returns whether a result can change although no file changes. `refresh` returns a live
    result in its present state. `is_sound` returns whether a result that was read from disk is valid.
    """

    compute: Callable[[RankRun, int], T]
    explain: Callable[[RankRun, str], T]
    is_live: Callable[[T], bool]
    refresh: Callable[[RankRun, T], T]
    is_sound: Callable[[T], bool]


class ManyRanks(Generic[T]):
    """A reader of one result for each of many ranks, in the way that `reading` says. The argument `read_task` is a
    function that calls this reader's `read_task`. Other processes import the function by its name.
    """

    def __init__(self, reading: Reading[T], read_task: Callable[[Task], list[T]]) -> None:
        self._reading = reading
        self._read_task = read_task
        self._derived = derived(file="rank", is_sound=reading.is_sound)(_make_safe(reading))

    def read_rank(self, rank: RankRun, number: int) -> T:
        """Return the result of one rank, kept in memory but not on disk. `number` is that of `Wanted`."""
        asked = self._derived.ask(rank, number)
        return self._renew(rank, find_store().keep(asked.key, asked.stamp, asked.compute))

    def read_task(self, task: Task) -> list[T]:
        """Return the results of a task's ranks. Each is kept on disk at once, in case this process is killed."""
        with Store(most_bytes=0).held():
            asked = [self._derived.ask(RankRun(task.run_path, rank), task.number) for rank in task.ranks]
            return [self._derived.read(one) for one in asked]

    def read(self, wanted: Wanted[T]) -> tuple[T, ...]:
        """Return the results of all ranks, however long it takes. Concurrent callers wait for the same reading.

        Results of a recording run may be some seconds old.
        """
        look = self._find(wanted.run)
        with look.lock:
            stamps, now = wanted.stamps, time.monotonic()
            is_paced = look.is_live and now < look.again_s
            if look.known is not None and (is_paced or (look.stamps == stamps and not look.is_live)):
                return look.known
            look.known = self._read(look, wanted)
            look.stamps, look.reading = stamps, {}
            look.is_live = any(map(self._reading.is_live, look.known))
            look.again_s = time.monotonic() + max(REST * (time.monotonic() - now), LOOK_AGAIN_S)
            return look.known

    def peek(self, wanted: Wanted[T]) -> SoFar[T]:
        """Return the results that are ready, almost at once. Missing and changed results are read in the background.

        Raises the exception of a failed background reading.
        """
        look, many, key = self._find(wanted.run), find_store().many, self._key(wanted.run)
        is_same = look.stamps == wanted.stamps and not look.is_live
        if look.prepared is not None and look.prepared is look.known:
            if is_same:
                return SoFar(look.prepared, len(look.prepared), True)
            if look.is_live and time.monotonic() < look.again_s:
                note_provisional()
                return SoFar(look.prepared, len(look.prepared), True)
        future = many.start(key, lambda: self._prepare(look, wanted))
        if future is not None and not (look.is_live and look.prepared is not None):
            wait([future], PATIENCE_S)
        failure = many.take_failure(key)
        if failure is not None and not isinstance(failure, StoppedError):
            raise failure
        if look.prepared is not None:
            return SoFar(look.prepared, len(look.prepared), True)
        found = dict(look.reading)
        return SoFar(tuple(found[rank] for rank in sorted(found)), len(wanted.ranks), False)

    def _prepare(self, look: _Look[T], wanted: Wanted[T]) -> None:
        known = self.read(wanted)
        wanted.prepare(known)
        look.prepared = known

    def _find(self, run: Run) -> _Look[T]:
        return find_store().keep(self._key(run), None, _Look)

    def _key(self, run: Run) -> Hashable:
        return self._derived, run.key

    def _renew(self, rank: RankRun, result: T) -> T:
        return self._reading.refresh(rank, result) if self._reading.is_live(result) else result

    def _read(self, look: _Look[T], wanted: Wanted[T]) -> tuple[T, ...]:
        found = look.reading = {}
        for rank, result in self._read_all(wanted.run, wanted.ranks, wanted.number):
            found[rank] = self._renew(wanted.run.read_rank(rank), result)
            if find_store().stopping.is_set():
                raise StoppedError("the ranks are not read to their end")
        return tuple(found[rank] for rank in wanted.ranks)

    def _read_all(self, run: Run, ranks: Sequence[int], number: int) -> Iterator[tuple[int, T]]:
        missing: dict[int, Asked[T]] = {}
        for rank, stamp in zip(ranks, stamp_ranks(run.path, ranks), strict=True):
            asked = self._derived.ask(run.read_rank(rank), number)
            asked.stamp = stamp, number
            if (known := self._derived.recall(asked)) is not None:
                yield rank, known.value
            else:
                missing[rank] = asked
        # Only this process knows how files are fetched, and what a redactor calls things.
        choose = None if LENDERS or run.redactor is not None else find_store().choose_workers
        workers: Workers = Here() if choose is None else choose(len(missing))
        if workers.are_here:
            for rank, asked in missing.items():
                yield rank, self._derived.read(asked)
            return
        for rank, result in self._share_out(run, list(missing), workers, number):
            yield rank, find_store().put(missing[rank].key, missing[rank].stamp, result)

    def _share_out(self, run: Run, ranks: list[int], workers: Workers, number: int) -> Iterator[tuple[int, T]]:
        """Yield each rank with its result, read in several processes. If a process dies while it reads a rank, the
        rank's result is the reason of this death.
        """
        killers, size = 0, RANKS_PER_TASK
        while ranks and killers < MOST_KILLERS:
            tasks = [Task(run.path, tuple(ranks[at : at + size]), number) for at in range(0, len(ranks), size)]
            # One rank by itself, so that the first that is not done is the one.
            chosen = workers if size > 1 else Processes(1, find_store().stopping)
            try:
                for task, results in zip(tasks, chosen.run(self._read_task, tasks, lambda done: None), strict=True):
                    ranks = ranks[len(task.ranks) :]
                    yield from zip(task.ranks, results, strict=True)
            except TraceError as error:
                log.warning("%s: %s", run.path, error)
                if size == 1:
                    yield ranks[0], self._reading.explain(run.read_rank(ranks[0]), KILLED)
                    ranks, killers = ranks[1:], killers + 1
                size = RANKS_PER_TASK if size == 1 else 1
        for rank in ranks:
            yield rank, self._reading.explain(run.read_rank(rank), KILLED)


def _make_safe(reading: Reading[T]) -> Callable[[RankRun, int], T]:
    """Return a function that reads a rank and never fails, so that one unreadable rank does not hide the others."""

    @wraps(reading.compute)
    def compute(rank: RankRun, number: int) -> T:
        failures: list[Exception] = []
        with Edge(failures.append):
            return reading.compute(rank, number)
        log.warning("%s cannot be read", rank.folder, exc_info=failures[0])
        return reading.explain(rank, f"It cannot be read: {type(failures[0]).__name__}: {failures[0]}"[:300])

    return compute


def choose_processes(ranks: int) -> Workers:
    """Return as many worker processes as idle cores and memory allow for reading `ranks` ranks. Return this process if
    starting workers would take longer than reading the ranks here.
    """
    idle = max(count_cores() - round(os.getloadavg()[0]), 1)
    count = count_processes(-(-ranks // RANKS_PER_TASK), READER_BYTES, idle)
    return Processes(count, find_store().stopping) if ranks * (count - 1) >= ALONE_RANKS * count else Here()
