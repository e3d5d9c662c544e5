"""The workers of an import: this process, local processes, or a Dask cluster. A worker that dies costs a retry."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

from collector.format.schema.errors import StepscopeError, TraceError, UsageError
from collector.version import __version__

T = TypeVar("T")
R = TypeVar("R")
Tell = Callable[[int], None]
"""A function that is called with the number of finished tasks."""

MOST_DEATHS = 3
"""After this many deaths of processes in a row, without a finished task between them, the import fails."""
WORKER_BYTES = 600 << 20
"""The memory that a process may need to import a trace."""
MOST_SHARING = 4
"""The greatest number of processes for one file: one of them finds the pieces and joins the results."""
ALONE_BYTES = 32 << 20
"""Files with a smaller total size are read here faster than other processes start."""


STOP_S = 0.2
"""How often, in s, the stop event is checked."""


class StoppedError(StepscopeError):
    """The tasks were stopped from outside, because their results are no longer needed."""


class Workers(Protocol):
    """A runner of tasks. Results come in the order of the tasks, and the exception of a task passes through.

    `are_here` is true if this process runs one task after the other. `helpers` is the number of processes that may help
    with each task.
    """

    are_here: bool
    helpers: int

    def run(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Tell) -> Iterator[R]: ...


class Here:
    """A runner in this process. `processes` per task, helpers included: by default the cores, up to MOST_SHARING."""

    are_here = True

    def __init__(self, processes: int | None = None) -> None:
        self.helpers = max(processes or min(count_cores(), MOST_SHARING), 1) - 1

    def run(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Tell) -> Iterator[R]:
        for done, task in enumerate(tasks, 1):
            yield function(task)
            on_done(done)


class Processes:
    """A runner of tasks in local processes. Each `run` starts new processes; these are killed when `stop` is set."""

    are_here = False

    def __init__(self, jobs: int, stop: threading.Event | None = None) -> None:
        self.jobs = jobs
        self._stop = stop
        self.helpers = max(min(count_cores() // jobs, MOST_SHARING), 1) - 1

    def run(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Tell) -> Iterator[R]:
        return _order(self._run_all(function, tasks, on_done))

    def _run_all(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Tell) -> Iterator[tuple[int, R]]:
        done: set[int] = set()
        deaths = 0
        while len(done) < len(tasks):
            known = len(done)
            try:
                for index, result in self._run_pool(function, tasks, done):
                    done.add(index)
                    on_done(len(done))
                    yield index, result
            except BrokenProcessPool:
                deaths = 1 if len(done) > known else deaths + 1
                if deaths >= MOST_DEATHS:
                    raise TraceError(
                        f"{deaths} processes were killed while they read these files, such as for want of memory; "
                        "try with fewer at a time: --jobs 1"
                    ) from None

    def _run_pool(self, function: Callable[[T], R], tasks: Sequence[T], known: set[int]) -> Iterator[tuple[int, R]]:
        """Yield the index and the result of each task when it is done. `known` are the indexes of tasks that are
        already done.

        Raises BrokenProcessPool when a process dies, StoppedError when stopped, and the exception of a failed task."""
        context = multiprocessing.get_context("spawn")
        left = [index for index in range(len(tasks)) if index not in known]
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(min(self.jobs, max(len(left), 1)), context, _begin_worker)
        finished = False
        try:
            futures: dict[Future[R], int] = {pool.submit(function, tasks[index]): index for index in left}
            pending = set(futures)
            while pending:
                done, pending = wait(pending, None if self._stop is None else STOP_S, FIRST_COMPLETED)
                if self._stop is not None and self._stop.is_set():
                    raise StoppedError("the processes were stopped")
                # Those that are done count, also where another one's process has died.
                for future in sorted(done, key=lambda one: isinstance(one.exception(), BrokenProcessPool)):
                    yield futures[future], future.result()
            finished = True
        finally:
            if not finished:
                for process in set(multiprocessing.active_children()) - before:
                    process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


class Cluster:
    """A Dask cluster whose workers have Stepscope and see the same files under the same paths.

    Raises UsageError if the cluster does not answer, or if a worker has no Stepscope or another version of it. Raises
    TraceError if the scheduler disappears during the work.
    """

    are_here = False
    helpers = 0

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise UsageError("--dask needs Dask: pip install 'stepscope[fleet]'") from None
        self._address = address
        # Dask logs a lost connection with tracebacks. Here one line reports it.
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        try:
            self._client = Client(address, timeout=20)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"--dask {address} does not answer: {' '.join(str(error).split())[:200]}") from None
        try:
            self.workers = _check_versions(self._client.run(tell_version, on_error="return"))
        except UsageError:
            self.close()
            raise

    def run(self, function: Callable[[T], R], tasks: Sequence[T], on_done: Tell) -> Iterator[R]:
        from distributed.comm import CommClosedError

        pending: dict[Any, int] = {}
        try:
            # A result that is fetched at once cannot be lost with its worker.
            pending.update((future, at) for at, future in enumerate(self._client.map(function, tasks, pure=False)))
            yield from _order(self._fetch(pending, on_done))
        except (CancelledError, CommClosedError):
            pending.clear()  # the scheduler is lost, so nothing can be cancelled
            raise TraceError(
                f"the scheduler of the cluster at {self._address} was lost in the middle; start it again, and repeat this"
            ) from None
        finally:
            if pending:
                self._client.cancel(list(pending))

    def _fetch(self, pending: dict[Any, int], on_done: Tell) -> Iterator[tuple[int, Any]]:
        """Yield the results of `pending` tasks as they arrive; finished tasks are removed from `pending`."""
        from distributed import as_completed

        done = 0
        for batch in as_completed(list(pending)).batches():
            for future in batch:
                _raise_of(future)
            for future, result in zip(batch, self._client.gather(batch), strict=True):
                index = pending.pop(future)
                future.release()
                done += 1
                on_done(done)
                yield index, result

    def close(self) -> None:
        self._client.close()


def _order(found: Iterator[tuple[int, R]]) -> Iterator[R]:
    """Yield results in the order of their tasks. They may arrive in any order."""
    results: dict[int, R] = {}
    place = 0
    for index, result in found:
        results[index] = result
        while place in results:
            yield results.pop(place)
            place += 1


def tell_version() -> str:
    return __version__


def _check_versions(told: dict[str, Any]) -> int:
    for worker, version in told.items():
        if version != __version__:
            has = f"has {version}" if isinstance(version, str) else f"does not have it ({version})"
            raise UsageError(f"the workers of the cluster need Stepscope {__version__}; {worker} {has}")
    return len(told)


def _raise_of(future: Any) -> None:
    """Raise the exception of a failed task, or the reason why the task could not run. Do nothing if it succeeded."""
    from distributed.scheduler import KilledWorker

    if (error := future.exception()) is None:
        return
    if isinstance(error, KilledWorker):
        raise TraceError("workers of the cluster died while they read a file, again and again; see their logs")
    # The scheduler also unpacks tasks. If it cannot, the cause of its error has the reason.
    for lacking in (error, error.__cause__):
        if isinstance(lacking, (ImportError, AttributeError)):
            raise UsageError(f"the scheduler and the workers of the cluster need Stepscope {__version__}: {lacking}")
    raise error


def choose_jobs(files: Sequence[Path], cores: int | None = None) -> int:
    """Return the number of processes for reading files, limited by cores, files and memory; 1 for little data."""
    sizes = [path.stat().st_size for path in files if path.is_file()]
    if len(sizes) < 2 or sum(sizes) < ALONE_BYTES:
        return 1
    return count_processes(len(sizes), WORKER_BYTES, cores)


def count_processes(tasks: int, bytes_each: int, cores: int | None = None) -> int:
    """Return the number of processes for tasks of `bytes_each` bytes each, limited by cores and memory, at least 1."""
    room = int(psutil.virtual_memory().available // bytes_each)
    return max(1, min(cores or count_cores(), tasks, room))


def count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin_worker() -> None:
    """Prepare a worker: it ignores Ctrl-C, which the waiting process handles, and ends if that process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
