"""Tell which rank each trace of a run is of, and traces that are no ranks of one job from those that may be."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from collector.format.schema.errors import TraceError
from collector.traces.format import TraceFacts

CLOCKS_APART_NS = 10**9
"""The clocks of two hosts may differ by so much: traces that lie further apart were not taken at the same time."""

# What tensorboard_trace_handler writes: <host>_<pid>.<time>.pt.trace.json
_OF_PROCESS = re.compile(r"(?P<process>.+_\d+)\.\d+\.pt\.trace\.json(\.gz)?$")


@dataclass(frozen=True)
class Placed:
    """A trace that is a rank of the run."""

    rank: int
    path: Path
    facts: TraceFacts

    @property
    def start_ns(self) -> int:
        return self.facts.epoch_unix_ns

    @property
    def end_ns(self) -> int:
        return self.facts.epoch_unix_ns + self.facts.end_ns


@dataclass
class Placing:
    """Gives each trace of a run its rank. `files` is of how many files the run is made."""

    files: int
    ranks: dict[int, Placed] = field(default_factory=dict)
    _processes: dict[str, Placed] = field(default_factory=dict)
    _first_to_end: Placed | None = None
    _last_to_start: Placed | None = None
    _untold: Placed | None = None

    def add(self, path: Path, facts: TraceFacts) -> Placed:
        """Place a trace: as what it says, or by its place among the files.

        Raises TraceError if its rank is taken, or if it says none and cannot be of one job with another: it is of the
        same process, or was taken at another time.
        """
        rank = facts.rank
        if rank is None:
            rank = 0 if self.files == 1 else len(self.ranks)
        placed = Placed(rank, path, facts)
        if facts.rank is None or self._untold is not None:
            self._untold = self._untold or placed
            self._check_process(placed)
            self._check_time(placed)
        if rank in self.ranks:
            raise TraceError(f"{path} and {self.ranks[rank].path} are both of rank {rank}; import them as two runs")
        self._remember(placed)
        return placed

    def _check_process(self, placed: Placed) -> None:
        same = self._processes.get(name_process(placed.path) or "")
        if same is not None and same.path != placed.path:
            raise TraceError(_explain(same, placed, "were recorded by one process one after the other"))

    def _check_time(self, placed: Placed) -> None:
        if not placed.facts.absolute:
            return
        for other in (self._first_to_end, self._last_to_start):
            if other is None:
                continue
            earlier, later = sorted((other, placed), key=lambda one: one.start_ns)
            if later.start_ns > earlier.end_ns + CLOCKS_APART_NS:
                raise TraceError(_explain(earlier, later, "were not recorded at the same time"))

    def _remember(self, placed: Placed) -> None:
        self.ranks[placed.rank] = placed
        process = name_process(placed.path)
        if process is not None:
            self._processes.setdefault(process, placed)
        if placed.facts.absolute:
            self._first_to_end = min(self._first_to_end or placed, placed, key=lambda one: one.end_ns)
            self._last_to_start = max(self._last_to_start or placed, placed, key=lambda one: one.start_ns)


def name_process(path: Path) -> str | None:
    """Return host and number of the process that a trace handler named the file after, None for another name."""
    match = _OF_PROCESS.match(path.name)
    return match["process"] if match else None


def _explain(one: Placed, other: Placed, why: str) -> str:
    both = f"{one.path} and {other.path}"
    return f"{both} {why} and do not both say a rank, so they are no ranks of one job; import them one by one"
