"""The training process and its DataLoader workers: which they are, and what each used of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from collector.format.schema.layout import events_path
from collector.ring.stage_log import RING_PATTERN

MOST_WORKERS = 64
_RING_FIELDS = 6
_RESTS = ("collector.sidecar", "resource_tracker", "forkserver", "semaphore_tracker")


class Sample(NamedTuple):
    """One figure; `metric` is one of the table `resources`."""

    source: str
    metric: str
    value: float


class Rates:
    """Turns counters that only grow into what they grew by per second, source by source."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, int, str], tuple[float, float]] = {}

    def grow(self, key: tuple[str, int, str], count: float) -> float | None:
        """Return the growth per second since the last call with this key (source, process, metric), None at the first."""
        now, before = time.monotonic(), self._before.get(key)
        self._before[key] = (now, count)
        if before is None or now <= before[0]:
            return None
        return max(count - before[1], 0.0) / (now - before[0])

    def forget(self, pid: int) -> None:
        for key in [key for key in self._before if key[1] == pid]:
            del self._before[key]


class Processes:
    """The trainer and its workers. A worker is known by the stage log that it writes; else by being a child."""

    def __init__(self, rank_folder: Path, trainer: int) -> None:
        self._events = events_path(rank_folder)
        self._pid = trainer
        self._trainer: psutil.Process | None = None
        self._workers: dict[int, tuple[str, psutil.Process]] = {}
        self._rest: set[int] = set()
        self._rates = Rates()

    def sample(self) -> Iterator[Sample]:
        """Yield what the trainer and each of its workers used since the last call; nothing when the trainer is gone."""
        try:
            self._trainer = self._trainer or psutil.Process(self._pid)
            self._find_workers(self._trainer)
        except psutil.Error:
            return
        yield from self._sample_one("process", self._trainer)
        for name, process in list(self._workers.values())[:MOST_WORKERS]:
            yield from self._sample_one(name, process)

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
        for metric, count in counters.items():
            rate = self._rates.grow((source, process.pid, metric), count) if count is not None else None
            if rate is not None:
                yield Sample(source, metric, rate)


class Machine:
    """The whole machine: cores in use, also of those alone that the trainer may use, memory, what its disks read."""

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
        for metric, count in counters.items():
            rate = self._rates.grow(("system", 0, metric), count) if count is not None else None
            if rate is not None:
                yield Sample("system", metric, rate)


def _count_busy_s(times: Any) -> float:
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _read_usable_s(trainer: int) -> float | None:
    """Return how long the processors were busy that the trainer may use, None where that is not known."""
    try:
        usable = os.sched_getaffinity(trainer)
        return sum(
            _count_busy_s(times) for number, times in enumerate(psutil.cpu_times(percpu=True)) if number in usable
        )
    except (AttributeError, OSError, psutil.Error):
        return None


def name_workers(events: Path) -> dict[int, str]:
    """Return the workers that write a stage log, by process id; those of further loaders say so."""
    names: dict[int, str] = {}
    for path in events.glob(RING_PATTERN):
        fields = path.stem.split("-")  # stages-<loader>-<epoch>-<worker>-<pid>-<time>
        if len(fields) == _RING_FIELDS and all(field.isdecimal() for field in fields[1:]):
            loader, _, worker, pid, _ = (int(field) for field in fields[1:])
            names[pid] = f"worker {worker}" if not loader else f"worker {worker} of loader {loader}"
    return names


def _read_command(child: psutil.Process) -> str:
    """Return what a child runs; empty for one that is gone, or so new that its program is not in place yet."""
    try:
        return " ".join(child.cmdline())
    except psutil.Error:
        return ""


def _may_be_worker(command: str) -> bool:
    """Say whether a command is like a worker's: one that was forked runs the trainer's own."""
    return "python" in command and not any(rest in command for rest in _RESTS)


def _read_disk_bytes(process: psutil.Process) -> float | None:
    """Return what a process had read from disks (not from the cache); None where the system does not tell."""
    try:
        return float(process.io_counters().read_bytes)
    except (AttributeError, psutil.Error):
        return None


def _read_schedule(pid: int) -> dict[str, float]:
    """Return how long the main thread has run, how long it could have but had no processor, and how often it was put on one.

    Empty where the system does not tell: it is Linux that does.
    """
    try:
        ran_ns, waited_ns, times = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
        return {
            "main_thread_cores": int(ran_ns) / 1e9,
            "run_queue_frac": int(waited_ns) / 1e9,
            "scheduled_per_s": float(times),
        }
    except (OSError, ValueError):
        return {}
