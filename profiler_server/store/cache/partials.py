"""A small result of each rank of a run of very many: read once, kept on disk with the stamp of the rank's files, and read
by several processes where many are missing. A rank that changed is read again by itself.

Nothing here knows what a result is; it is a function of the rank's files and of a number that holds for the whole run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from collector.edge import Edge
from collector.format.run import RankRun, Run
from collector.format.schema.errors import TraceError
from collector.format.stored_files import LENDERS
from collector.traces.workers import Here, Processes, Workers, count_cores, count_processes
from profiler_server.store.cache.memory import Entry, MemoryCache
from profiler_server.store.cache.records import Records
from profiler_server.store.cache.stamp import stamp_rank, stamp_ranks

RANKS_PER_TASK = 16
ALONE_RANKS = 400
"""So many are read here in the time that other processes take to start."""
READER_BYTES = 250 << 20
"""What a process that reads ranks may come to need."""
MOST_KILLERS = 3
"""Ranks whose reading kills processes, after which the rest is given up."""
KILLED = "Reading it was given up: the processes that read it were killed, such as for want of memory."
STOPPED = threading.Event()
"""Set while what is being read is to end."""
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Ranks of a run that one process reads, one after the other; `number` is what holds for the whole run."""

    run_path: Path
    ranks: tuple[int, ...]
    number: int


@dataclass
class _Choice:
    choose: Callable[[int], Workers]


_CHOICE = _Choice(lambda ranks: Here())


def use_workers(choose: Callable[[int], Workers]) -> None:
    """Have so many missing ranks read by the workers that `choose` returns.

    Commands of ours do so. A script does not: its own module would run again in each process.
    """
    _CHOICE.choose = choose


def choose_processes(ranks: int) -> Workers:
    """Return processes of this machine, as many as there are idle cores and memory for, where that is worth their start."""
    idle = max(count_cores() - round(os.getloadavg()[0]), 1)
    count = count_processes(-(-ranks // RANKS_PER_TASK), READER_BYTES, idle)
    return Processes(count, STOPPED) if ranks * (count - 1) >= ALONE_RANKS * count else Here()


class Partials(Generic[T]):
    """`compute` reads a rank, `explain` makes the result of one that cannot be read from the reason.

    At most `limit` results are held in memory. Safe to use from several threads.
    """

    def __init__(
        self,
        records: Records[T],
        compute: Callable[[RankRun, int], T],
        explain: Callable[[RankRun, str], T],
        limit: int,
    ) -> None:
        self._records = records
        self._compute = compute
        self._explain = explain
        self._memory: MemoryCache[T] = MemoryCache(limit)

    def read(self, rank: RankRun, number: int) -> T:
        """Return the result of one rank; nothing is written to the disk for it."""
        stamp = stamp_rank(rank.run_path, rank.rank), number
        return self._memory.find_or_compute(rank.key, stamp, lambda: self._compute_safely(rank, number))

    def read_task(self, task: Task) -> list[T]:
        """Read the ranks of a task and keep them on disk; whoever takes the task over from one that was killed goes on."""
        return [self._read_kept(RankRun(task.run_path, rank), task.number) for rank in task.ranks]

    def read_all(
        self, run: Run, ranks: Sequence[int], number: int, read_task: Callable[[Task], list[T]]
    ) -> Iterator[tuple[int, T]]:
        """Yield each rank with its result, those that are known first.

        `read_task` is that of this, by a name that another process finds.
        """
        stamps = {rank: (stamp, number) for rank, stamp in zip(ranks, stamp_ranks(run.path, ranks), strict=True)}
        missing = []
        for rank in ranks:
            known = self._find(run.read_rank(rank), stamps[rank])
            if known is None:
                missing.append(rank)
            else:
                yield rank, known.result
        for rank, result in self._read_missing(run, missing, number, read_task):
            self._memory.put(run.read_rank(rank).key, Entry(stamps[rank], result))
            yield rank, result

    def _find(self, rank: RankRun, stamp: Hashable) -> Entry[T] | None:
        entry = self._memory.find(rank.key)
        if entry is not None and entry.stamp == stamp:
            return entry
        entry = self._records.find(rank, stamp)
        if entry is not None:
            self._memory.put(rank.key, entry)
        return entry

    def _read_missing(
        self, run: Run, ranks: list[int], number: int, read_task: Callable[[Task], list[T]]
    ) -> Iterator[tuple[int, T]]:
        # Only this process knows how files are fetched, and what a redactor calls things.
        is_alone = bool(LENDERS) or run.redactor is not None
        workers: Workers = Here() if is_alone else _CHOICE.choose(len(ranks))
        if workers.are_here:
            for rank in ranks:
                yield rank, self._read_kept(run.read_rank(rank), number)
        else:
            yield from self._share_out(run, ranks, _Crew(workers, number, read_task))

    def _share_out(self, run: Run, ranks: list[int], crew: _Crew[T]) -> Iterator[tuple[int, T]]:
        """Have tasks done; where those who do them are killed again and again, find the rank that kills them."""
        killers, size = 0, RANKS_PER_TASK
        while ranks and killers < MOST_KILLERS:
            tasks = [Task(run.path, tuple(ranks[at : at + size]), crew.number) for at in range(0, len(ranks), size)]
            # One rank by itself, so that the first that is not done is the one.
            workers = crew.workers if size > 1 else Processes(1, STOPPED)
            try:
                for task, results in zip(tasks, workers.run(crew.read_task, tasks, lambda done: None), strict=True):
                    ranks = ranks[len(task.ranks) :]
                    yield from zip(task.ranks, results, strict=True)
            except TraceError as error:
                log.warning("%s: %s", run.path, error)
                if size == 1:
                    yield ranks[0], self._explain(run.read_rank(ranks[0]), KILLED)
                    ranks, killers = ranks[1:], killers + 1
                size = RANKS_PER_TASK if size == 1 else 1
        for rank in ranks:
            yield rank, self._explain(run.read_rank(rank), KILLED)

    def _read_kept(self, rank: RankRun, number: int) -> T:
        stamp = stamp_rank(rank.run_path, rank.rank), number
        entry = self._records.find(rank, stamp)
        if entry is None:
            entry = Entry(stamp, self._compute_safely(rank, number))
            self._records.write(rank, stamp, entry.result)
        return entry.result

    def _compute_safely(self, rank: RankRun, number: int) -> T:
        """One rank that cannot be read, for whatever reason, must not keep the others from being shown."""
        failures: list[Exception] = []
        with Edge(failures.append):
            return self._compute(rank, number)
        log.warning("%s cannot be read", rank.folder, exc_info=failures[0])
        return self._explain(rank, f"It cannot be read: {type(failures[0]).__name__}: {failures[0]}"[:300])


@dataclass(frozen=True)
class _Crew(Generic[T]):
    """Who reads ranks for other processes, and how."""

    workers: Workers
    number: int
    read_task: Callable[[Task], list[T]]
