"""Samples for the table `resources`: how much of the processors, memory and disks the machine, the training process and
its workers use, and what they lack.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from collector.format.schema.layout import events_path
from collector.format.words import ENDED_WORKERS
from collector.notes import read_notes
from collector.ring.stage_log import RING_PATTERN

MOST_WORKERS = 64
_RING_FIELDS = 6
_LEAST_ENDED_CORES = 0.02
_RESTS = ("collector.sidecar", "resource_tracker", "forkserver", "semaphore_tracker")


class Sample(NamedTuple):
    """One value of a `metric` of the table `resources`; `source` is whose it is, such as "process"."""

    source: str
    metric: str
    value: float


class Rates:
    def __init__(self) -> None:
        self._before: dict[tuple[str, int, str], tuple[float, float]] = {}

    def grow(self, key: tuple[str, int, str], count: float) -> float | None:
        """Return the growth per second since the last call with this (source, process, metric); None at the first."""
        now, before = time.monotonic(), self._before.get(key)
        self._before[key] = (now, count)
        if before is None or now <= before[0]:
            return None
        return max(count - before[1], 0.0) / (now - before[0])

    def sample(self, source: str, pid: int, counters: Mapping[str, float | None]) -> Iterator[Sample]:
        """Yield the growth per second of each counter of `counters` (metric to count) that is not None."""
        for metric, count in counters.items():
            rate = self.grow((source, pid, metric), count) if count is not None else None
            if rate is not None:
                yield Sample(source, metric, rate)

    def forget(self, pid: int) -> None:
        for key in [key for key in self._before if key[1] == pid]:
            del self._before[key]


class Processes:
    """Samples of the training process and its workers: children with a stage log, or Python children older than 2 s."""

    def __init__(self, rank_folder: Path, trainer: int) -> None:
        self._events = events_path(rank_folder)
        self._pid = trainer
        self._trainer: psutil.Process | None = None
        self._workers: dict[int, tuple[str, psutil.Process]] = {}
        self._rest: set[int] = set()
        self._rates = Rates()
        self._family_s = 0.0
        self._has_ended = False

    def sample(self) -> Iterator[Sample]:
        """Yield the use since the last call by the training process, its workers, and workers that ended."""
        try:
            self._trainer = self._trainer or psutil.Process(self._pid)
            self._find_workers(self._trainer)
        except psutil.Error:
            return
        known = list(self._sample_one("process", self._trainer))
        for name, process in list(self._workers.values())[:MOST_WORKERS]:
            known += self._sample_one(name, process)
        yield from known
        yield from self._sample_ended(sum(sample.value for sample in known if sample.metric == "cpu_cores"))

    def _sample_ended(self, known_cores: float) -> Iterator[Sample]:
        """Yield what workers used that ended since the last call, or began too late for a sample of their own. Workers
        that live use `known_cores` together with the training process. Nothing without workers of a loader: other
        children of the training, such as compilers, also end.
        """
        family_s = 0.0
        for process in (self._trainer, *(process for _, process in self._workers.values())):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times() if process is not None else None
                family_s += sum(times) - getattr(times, "iowait", 0.0) if times is not None else 0.0
        self._family_s = max(family_s, self._family_s)
        cores = self._rates.grow(("family", self._pid, "cpu_cores"), self._family_s)
        # An old child that is no worker may end, too. It has not used more than there is.
        ended = min(max((cores or 0.0) - known_cores, 0.0), float(psutil.cpu_count() or 1))
        self._has_ended = self._has_ended or (ended >= _LEAST_ENDED_CORES and bool(name_workers(self._events)))
        if self._has_ended:
            yield Sample(ENDED_WORKERS, "cpu_cores", ended)

    def _find_workers(self, trainer: psutil.Process) -> None:
        children = {child.pid: child for child in trainer.children()}
        for gone in self._workers.keys() - children.keys():
            del self._workers[gone]
            self._rates.forget(gone)
        self._rest &= children.keys()
        fresh = {pid: child for pid, child in children.items() if pid not in self._workers and pid not in self._rest}
        logs = name_workers(self._events) if fresh else {}
        for pid, child in fresh.items():
            if pid in logs:
                self._workers[pid] = (logs[pid], child)
            elif (command := _read_command(child)) and not _may_be_worker(command):
                self._rest.add(pid)
            elif command and time.time() - child.create_time() > 2.0:  # its log would be there by now
                self._workers[pid] = (self._next_name(), child)

    def _next_name(self) -> str:
        taken = {name for name, _ in self._workers.values()}
        return next(name for number in range(len(taken) + 1) if (name := f"worker {number}") not in taken)

    def _sample_one(self, source: str, process: psutil.Process) -> Iterator[Sample]:
        try:
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info().rss
            read_bytes = _read_disk_bytes(process)
        except psutil.Error:
            return
        yield Sample(source, "memory_bytes", float(memory))
        counters = {
            "cpu_cores": times.user + times.system,
            "read_bytes_per_s": read_bytes,
            **_read_schedule(process.pid),
        }
        yield from self._rates.sample(source, process.pid, counters)


class Machine:
    """Samples of the machine: busy cores (of all, and of those the training may use), memory, bytes read from disks."""

    def __init__(self, trainer: int) -> None:
        self._trainer = trainer
        self._rates = Rates()

    def sample(self) -> Iterator[Sample]:
        yield Sample("system", "memory_bytes", float(psutil.virtual_memory().used))
        disks = psutil.disk_io_counters()
        counters = {
            "cpu_cores": _count_busy_s(psutil.cpu_times()),
            "usable_cpu_cores": _read_usable_s(self._trainer),
            "read_bytes_per_s": float(disks.read_bytes) if disks else None,
        }
        yield from self._rates.sample("system", 0, counters)


def _count_busy_s(times: Any) -> float:
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _read_usable_s(trainer: int) -> float | None:
    try:
        usable = os.sched_getaffinity(trainer)
        return sum(
            _count_busy_s(times) for number, times in enumerate(psutil.cpu_times(percpu=True)) if number in usable
        )
    except (AttributeError, OSError, psutil.Error):
        return None


def name_workers(events: Path) -> dict[int, str]:
    """Map process ids to names of the workers with a stage log, such as "worker 1 of loader 2"."""
    names: dict[int, str] = {}
    for path in events.glob(RING_PATTERN):
        fields = path.stem.split("-")  # stages-<loader>-<epoch>-<worker>-<pid>-<time>
        if len(fields) == _RING_FIELDS and all(field.isdecimal() for field in fields[1:]):
            loader, _, worker, pid, _ = (int(field) for field in fields[1:])
            names[pid] = f"worker {worker}" if not loader else f"worker {worker} of loader {loader}"
    return names


def _read_command(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline())
    except psutil.Error:
        return ""


def _may_be_worker(command: str) -> bool:
    """Return whether a command may be a worker's. A forked worker has the command of the training process."""
    return "python" in command and not any(rest in command for rest in _RESTS)


def _read_disk_bytes(process: psutil.Process) -> float | None:
    try:
        return float(process.io_counters().read_bytes)
    except (AttributeError, psutil.Error):
        return None


def _read_schedule(pid: int) -> dict[str, float]:
    """Return two totals of a main thread in seconds: running, and waiting for a processor; empty if unknown."""
    try:
        ran_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
        return {
            "main_thread_cores": int(ran_ns) / 1e9,
            "run_queue_frac": int(waited_ns) / 1e9,
        }
    except (OSError, ValueError):
        return {}


READ_AGAIN = 20
"""Number of samples after which the notes are read again, because threads come and go."""
MOST_THREADS = 16


class PythonThreads:
    """Samples of the cores that the script's Python threads use. A sample costs some 15 µs per thread."""

    def __init__(self, rank_folder: Path, pid: int, proc: Path = Path("/proc")) -> None:
        self._rank_folder = rank_folder
        self._tasks = proc / str(pid) / "task"
        self._pid = pid
        self._ids: tuple[int, ...] = ()
        self._rates = Rates()
        self._samples = 0

    def sample(self) -> Iterator[Sample]:
        if self._samples % READ_AGAIN == 0:
            self._ids = self._read_ids()
        self._samples += 1
        grown = [self._grow(thread) for thread in self._ids]
        known = [rate for rate in grown if rate is not None]
        if known:
            yield Sample("process", "python_threads_cores", sum(known))

    def _grow(self, thread: int) -> float | None:
        try:
            ran_ns = int((self._tasks / str(thread) / "schedstat").read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return self._rates.grow(("process", thread, "python_threads_cores"), ran_ns / 1e9)

    def _read_ids(self) -> tuple[int, ...]:
        try:
            noted = read_notes(self._rank_folder).facts.get("python_threads")
        except (OSError, ValueError):
            return self._ids
        numbers = [_read_id(entry) for entry in noted[:MOST_THREADS]] if isinstance(noted, list) else []
        return tuple(number for number in numbers if number)


def _read_id(entry: Any) -> int:
    number = entry.get("id") if isinstance(entry, Mapping) else None
    return number if isinstance(number, int) and number > 0 else 0


_ROOT = Path("/sys/fs/cgroup")
_PRESSURE = Path("/proc/pressure/memory")


class Pressure:
    """Samples of how much a CPU quota stopped processes, and of waits for memory. A figure is left out if the kernel
    lacks it.

    The quota of the process's cgroup, or of any group above it, can stop the process. So the sample is from the group
    whose quota stopped most processors.
    """

    def __init__(self, pid: int, root: Path = _ROOT, proc: Path = Path("/proc")) -> None:
        groups = find_groups(pid, root, proc)
        counted = (folder / "cpu.stat" for folder in groups)
        self._quotas = [file for file in counted if "nr_periods" in read_counts(file)]
        own = _find_file(folder / "memory.pressure" for folder in groups)
        self._memory = own or _find_file([_PRESSURE])
        self._memory_source = "cgroup" if own is not None else "system"
        self._rates = Rates()
        self._before: dict[Path, tuple[int, int]] = {}

    def sample(self) -> Iterator[Sample]:
        found = [rates for at, file in enumerate(self._quotas) if (rates := self._measure_stops(at, file))]
        if found:
            cores, share = max(found, key=lambda rates: rates[0])  # the nearest one if none was stopped
            yield Sample("cgroup", "throttled_frac", share)
            yield Sample("cgroup", "throttled_cores", cores)
        if self._memory is not None:
            yield from self._sample_memory(self._memory)

    def _measure_stops(self, at: int, file: Path) -> tuple[float, float] | None:
        """Return the mean number of processors that quota `at` stopped, and the share of periods."""
        counts = read_counts(file)
        stopped_s = counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9
        cores = self._rates.grow(("cgroup", at, "throttled_cores"), stopped_s)
        now = counts.get("nr_periods", 0), counts.get("nr_throttled", 0)
        before, self._before[file] = self._before.get(file), now
        if before is None or cores is None or now[0] <= before[0]:
            return None
        return cores, min(max((now[1] - before[1]) / (now[0] - before[0]), 0.0), 1.0)

    def _sample_memory(self, file: Path) -> Iterator[Sample]:
        stalled_us = read_stalled_us(file)
        if stalled_us is None:
            self._memory = None
            return
        share = self._rates.grow((self._memory_source, 0, "memory_stall_frac"), stalled_us / 1e6)
        if share is not None:
            yield Sample(self._memory_source, "memory_stall_frac", min(share, 1.0))


def find_groups(pid: int, root: Path, proc: Path) -> list[Path]:
    """Return the folders of a process's cgroup and those above; in a container only the root of the mount may exist."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [root]
        elif "cpu" in controllers.split(","):
            mounts = [root / controllers, root / "cpu"]
        else:
            continue
        own = Path(path.lstrip("/"))
        found += [mount / group for mount in mounts for group in (own, *own.parents)]
    return found


def read_counts(file: Path) -> dict[str, int]:
    """Return the lines `name number` of a file as a mapping, empty if the file cannot be read."""
    try:
        fields = [line.split() for line in file.read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError):
        return {}
    return {entry[0]: int(entry[1]) for entry in fields if len(entry) == 2 and entry[1].isdecimal()}


def read_stalled_us(file: Path) -> int | None:
    """Return the total µs in which a process waited for memory, None if the kernel does not report it."""
    try:
        first = file.read_text(encoding="ascii").splitlines()[0].split()
    except (OSError, ValueError, IndexError):
        return None
    total = first[-1].removeprefix("total=") if first and first[0] == "some" else ""
    return int(total) if total.isdecimal() else None


def _find_file(files: Iterable[Path]) -> Path | None:
    for file in files:
        with contextlib.suppress(OSError):
            if file.is_file():
                return file
    return None
