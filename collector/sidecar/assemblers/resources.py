"""What the machine was doing: cores in use and memory of the system, the training process and its workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from collector.notes import read_notes
from collector.parts import build_table_from_rows
from collector.ring.clock import Clock
from collector.sidecar.assembler import Assembler

EVERY_S = 0.5
MOST_WORKERS = 64

Rows = list[dict[str, Any]]


class ResourcesAssembler(Assembler):
    """Samples on its own clock while it is polled; offline, from what a run has left, there is nothing to sample."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        self._is_on = bool(notes.options.get("resources", True)) and not notes.finished
        self._pid = notes.pid
        self._next = time.monotonic()
        self._cpu_before: dict[int, tuple[float, float]] = {}
        self._delay_before: dict[int, tuple[float, float]] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._system_before: tuple[float, float] | None = None
        self._numbers: dict[int, int] = {}

    def poll(self) -> dict[str, pa.Table]:
        if not self._is_on or time.monotonic() < self._next:
            return {}
        self._next = time.monotonic() + EVERY_S
        rows = [*self._sample_system(), *self._sample_processes()]
        return {"resources": build_table_from_rows("resources", rows)} if rows else {}

    def finish(self) -> dict[str, pa.Table]:
        return {}

    def _sample_system(self) -> Rows:
        times = psutil.cpu_times()
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        now = time.monotonic()
        rows = [self._row("system", "memory_bytes", float(psutil.virtual_memory().used))]
        if self._system_before is not None:
            elapsed = now - self._system_before[0]
            rows.append(self._row("system", "cpu_cores", max(busy - self._system_before[1], 0.0) / elapsed))
        self._system_before = (now, busy)
        return rows

    def _sample_processes(self) -> Rows:
        try:
            trainer = self._processes.setdefault(self._pid, psutil.Process(self._pid))
            children = {child.pid: child for child in trainer.children() if self._is_worker(child)}
        except psutil.Error:
            return []
        for gone in self._processes.keys() - children.keys() - {self._pid}:
            del self._processes[gone]
            self._cpu_before.pop(gone, None)
            self._delay_before.pop(gone, None)
        rows = self._sample_process(trainer, "process")
        for pid, child in list(children.items())[:MOST_WORKERS]:
            number = self._numbers.setdefault(pid, len(self._numbers))
            rows += self._sample_process(self._processes.setdefault(pid, child), f"worker {number}")
        return rows

    def _sample_process(self, process: psutil.Process, source: str) -> Rows:
        try:
            times, memory = process.cpu_times(), process.memory_info().rss
        except psutil.Error:
            return []
        now, used = time.monotonic(), times.user + times.system
        rows = [self._row(source, "memory_bytes", float(memory))]
        before = self._cpu_before.get(process.pid)
        if before is not None:
            rows.append(self._row(source, "cpu_cores", max(used - before[1], 0.0) / (now - before[0])))
        self._cpu_before[process.pid] = (now, used)
        return rows + self._sample_run_queue(process.pid, source)

    def _sample_run_queue(self, pid: int, source: str) -> Rows:
        """Return the share of the time in which the main thread could have run, but had no processor. Linux only."""
        try:
            delay_ns = int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1])
        except (OSError, ValueError, IndexError):
            return []
        now, before = time.monotonic(), self._delay_before.get(pid)
        self._delay_before[pid] = (now, delay_ns / 1e9)
        if before is None:
            return []
        return [self._row(source, "run_queue_frac", max(delay_ns / 1e9 - before[1], 0.0) / (now - before[0]))]

    def _is_worker(self, child: psutil.Process) -> bool:
        try:
            # A forked worker runs the trainer's command; the sidecar and helpers of multiprocessing do not count.
            command = " ".join(child.cmdline())
        except psutil.Error:
            return False
        return "collector.sidecar" not in command and "resource_tracker" not in command

    def _row(self, source: str, metric: str, value: float) -> dict[str, Any]:
        return {"start_ns": self.clock.now(), "source": source, "metric": metric, "value": value}


ASSEMBLER = ResourcesAssembler
