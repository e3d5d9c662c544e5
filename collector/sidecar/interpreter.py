"""How long the Python threads beside the training thread were on a processor: they may hold the interpreter meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collector.notes import read_notes
from collector.sidecar.processes import Rates, Sample

READ_AGAIN = 20
"""Samples after which the notes are read again: threads come and go."""
MOST_THREADS = 16


class PythonThreads:
    """Samples of the metric `python_threads_cores`, nothing where there are no such threads. Some 15 µs a thread."""

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
        return (
            tuple(_read_id(entry) for entry in noted[:MOST_THREADS] if _read_id(entry))
            if isinstance(noted, list)
            else ()
        )


def _read_id(entry: Any) -> int:
    number = entry.get("id") if isinstance(entry, Mapping) else None
    return number if isinstance(number, int) and number > 0 else 0
