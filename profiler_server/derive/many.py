"""A small result of each rank of a run of very many: read in the background, by several processes where many are missing,
and kept on disk. A page shows what there is so far; a rank that changed is read again by itself.

Nothing here knows what a result is; it is a function of the rank's files and of a number that holds for the whole run.
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
"""How long a page waits for what is read for the first time: what was kept on disk is there by then."""
REST = 3.0
"""A run whose files change all the time is read again after so many times the time that it took."""
RANKS_PER_TASK = 16
ALONE_RANKS = 400
"""So many are read here in the time that other processes take to start."""
READER_BYTES = 250 << 20
"""What a process that reads ranks may come to need."""
MOST_KILLERS = 3
"""Ranks whose reading kills processes, after which the rest is given up."""
KILLED = "Reading it was given up: the processes that read it were killed, such as for want of memory."
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Ranks of a run that one process reads, one after the other; `number` is what holds for the whole run."""

    run_path: Path
    ranks: tuple[int, ...]
    number: int


@dataclass(frozen=True)
class SoFar(Generic[T]):
    """`results` of `total` ranks, in their order. `is_whole` says that they are of all, and may be some seconds old."""

    results: tuple[T, ...]
    total: int
    is_whole: bool


@dataclass
class _Look(Generic[T]):
    """`known` are the results of files with these stamps, None until all were read once; `reading` those so far.

    `prepared` is `known` when what a page makes of it was made. `is_live` says that a rank records; from `again_s` on
    such a run is looked at again, though no file has changed: a process that dies changes none.
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
    """Ranks of a run, and the number that their results depend on.

    `prepare` makes, of all results, whatever else a page needs and takes long; it is done in the background, too.
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
    """How a rank is read: `compute` does it, `explain` makes the result of one that cannot be read from the reason.

    `refresh` returns a result as it is now though no file has changed; `is_live` says of which that is to be asked.
    `is_sound` says whether a result from the disk can be one.
    """

    compute: Callable[[RankRun, int], T]
    explain: Callable[[RankRun, str], T]
    is_live: Callable[[T], bool]
    refresh: Callable[[RankRun, T], T]
    is_sound: Callable[[T], bool]


class ManyRanks(Generic[T]):
    """Reads ranks. `read_task` is that of this, by a name that another process finds."""

    def __init__(self, reading: Reading[T], read_task: Callable[[Task], list[T]]) -> None:
        self._reading = reading
        self._read_task = read_task
        self._derived = derived(file="rank", is_sound=reading.is_sound)(_make_safe(reading))

    def read_rank(self, rank: RankRun, number: int) -> T:
        """Return the result of one rank; nothing is written to the disk for it."""
        asked = self._derived.ask(rank, number)
        return self._renew(rank, find_store().keep(asked.key, asked.stamp, asked.compute))

    def read_task(self, task: Task) -> list[T]:
        """Read the ranks of a task and keep them on disk; whoever takes the task over from one that was killed goes on."""
        with Store(most_bytes=0).held():
            asked = [self._derived.ask(RankRun(task.run_path, rank), task.number) for rank in task.ranks]
            return [self._derived.read(one) for one in asked]

    def read(self, wanted: Wanted[T]) -> tuple[T, ...]:
        """Return the results of all ranks, however long it takes; whoever asks meanwhile waits for the same.

        Of a run that records they may be some seconds old.
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
        """Return the results so far, at once or nearly; what is missing, or has changed, is read in the background.

        Raises what that raised.
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
        look: _Look[T] = find_store().keep(self._key(run), None, _Look)
        return look

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
        """Yield each rank with its result, those that are known first."""
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
        """Have tasks done; where those who do them are killed again and again, find the rank that kills them."""
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
    """One rank that cannot be read, for whatever reason, must not keep the others from being shown."""

    @wraps(reading.compute)
    def compute(rank: RankRun, number: int) -> T:
        failures: list[Exception] = []
        with Edge(failures.append):
            return reading.compute(rank, number)
        log.warning("%s cannot be read", rank.folder, exc_info=failures[0])
        return reading.explain(rank, f"It cannot be read: {type(failures[0]).__name__}: {failures[0]}"[:300])

    return compute


def choose_processes(ranks: int) -> Workers:
    """Return processes of this machine, as many as there are idle cores and memory for, where that is worth their start."""
    idle = max(count_cores() - round(os.getloadavg()[0]), 1)
    count = count_processes(-(-ranks // RANKS_PER_TASK), READER_BYTES, idle)
    return Processes(count, find_store().stopping) if ranks * (count - 1) >= ALONE_RANKS * count else Here()
