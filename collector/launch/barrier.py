"""Hold the processes of a benchmark until all are ready, so that they run at the same time.

A barrier is a folder. A ready process puts a file there, and waits until every started process has put a file or has
ended. There are two barriers: at the start of recording, after the slow start of Python and torch, and at the first
range, after scripts have loaded their data. If a process times out, all processes go on.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from collector.edge import say
from collector.format.schema.removal import Scratch, make_scratch

VARIABLE = "STEPSCOPE_BARRIER"
TIMEOUT_S = 120.0
BEGIN, MARK = "begin", "mark"
_GONE, _OPEN = "gone", "open"
_LOOK_S = 0.005
_MOST = (1 << 20, TIMEOUT_S)
"""The greatest number of processes, and the longest wait in seconds."""


@dataclass(frozen=True)
class Barrier:
    """The barrier in `folder` for `processes` processes in all, as the process `name` uses it."""

    folder: str
    name: str
    processes: int
    timeout_s: float = TIMEOUT_S

    def encode(self) -> str:
        """Return the barrier as text, the value of `VARIABLE` in the environment of its process."""
        return json.dumps(asdict(self))

    def wait(self, place: str) -> str:
        """Wait until all processes have come to `place`, BEGIN or MARK; return a description of a failure, "" if there
        was none.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            self._put(place)
            while not self._is_open(place):
                if time.monotonic() > deadline:
                    self._put(f"{_OPEN}.{place}", "")
                    here = self._count(place)
                    return f"only {here} of {self.processes} processes were ready within {self.timeout_s:.0f} s; they go on"
                time.sleep(_LOOK_S)
        except OSError as error:
            return f"the processes do not wait for each other ({error.strerror or error})"
        return ""

    def leave(self) -> bool:
        """Note that this process has ended, so that no other waits for it. Return whether it ended before it came to
        BEGIN or MARK."""
        self._put(_GONE)
        return not any((Path(self.folder) / f"{place}.{self.name}").exists() for place in (BEGIN, MARK))

    def _is_open(self, place: str) -> bool:
        if (Path(self.folder) / f"{_OPEN}.{place}").exists():
            return True
        return len(self._list(place) | self._list(_GONE)) >= self.processes

    def _count(self, place: str) -> int:
        return len(self._list(place))

    def _list(self, kind: str) -> set[str]:
        return {name.partition(".")[2] for name in os.listdir(self.folder) if name.startswith(f"{kind}.")}

    def _put(self, kind: str, name: str | None = None) -> None:
        own = self.name if name is None else name
        (Path(self.folder) / (f"{kind}.{own}" if own else kind)).touch()


def make_room(output: Path) -> Scratch:
    """Make the barrier folder of a benchmark. OSError passes through."""
    output.mkdir(parents=True, exist_ok=True)
    return make_scratch(output, ".start-")


def find_barrier() -> Barrier | None:
    """Take the barrier out of this process's environment and return it; None if there is none or it is invalid."""
    text = os.environ.pop(VARIABLE, "")
    try:
        barrier = Barrier(**json.loads(text)) if text else None
    except (ValueError, TypeError, RecursionError):
        return None
    return barrier if barrier is not None and _is_sound(barrier) else None


def _is_sound(barrier: Barrier) -> bool:
    """Return whether the fields are valid, so that a training may wait: anybody may have set the environment variable
    that they come from.
    """
    numbers = (barrier.processes, barrier.timeout_s)
    if not all(
        isinstance(number, (int, float)) and 0 <= number <= most for number, most in zip(numbers, _MOST, strict=True)
    ):
        return False
    texts = (barrier.folder, barrier.name)
    return all(isinstance(text, str) and text.isprintable() and len(text) < 4096 for text in texts)


def hold(barrier: Barrier, place: str) -> None:
    """Wait at `place`, BEGIN or MARK, for the other processes of the benchmark, and print a failure to stderr."""
    problem = barrier.wait(place)
    if problem:
        say(problem)
