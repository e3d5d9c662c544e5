"""Hold the processes of a benchmark until all are ready, so that they run at the same time.

A folder is the barrier: a process that is ready puts a file there and waits until as many are there as were started,
not counting those that have ended. There are two places to wait: where a process begins to be recorded (the slow start
of Python and torch is behind it), and at its first range, where scripts have loaded what they need. The first that
times out lets all go on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from collector.format.schema.removal import Scratch, make_scratch

VARIABLE = "STEPSCOPE_BARRIER"
TIMEOUT_S = 120.0
BEGIN, MARK = "begin", "mark"
_GONE, _OPEN = "gone", "open"
_LOOK_S = 0.005
_MOST = (1 << 20, TIMEOUT_S)
"""The most processes, and the longest that they may wait."""


@dataclass(frozen=True)
class Barrier:
    """The barrier of `processes` processes, as the process `name` sees it."""

    folder: str
    name: str
    processes: int
    timeout_s: float = TIMEOUT_S

    def encode(self) -> str:
        """Return it as the value of the environment variable that hands it to a process."""
        return json.dumps(asdict(self))

    def wait(self, place: str) -> str:
        """Wait here until the others are here too; return what went wrong, empty if nothing did."""
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
        """Say that the process has ended; return whether it did before it was ready."""
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
    """Make a folder for the barrier of a benchmark. OSError passes through."""
    output.mkdir(parents=True, exist_ok=True)
    return make_scratch(output, ".start-")


def find_barrier() -> Barrier | None:
    """Return the barrier that this process was given, once; None if it is in no benchmark."""
    text = os.environ.pop(VARIABLE, "")
    try:
        barrier = Barrier(**json.loads(text)) if text else None
    except (ValueError, TypeError, RecursionError):
        return None
    return barrier if barrier is not None and _is_sound(barrier) else None


def _is_sound(barrier: Barrier) -> bool:
    """Say whether a training may wait there: the variable may be of anybody."""
    numbers = (barrier.processes, barrier.timeout_s)
    if not all(
        isinstance(number, (int, float)) and 0 <= number <= most for number, most in zip(numbers, _MOST, strict=True)
    ):
        return False
    texts = (barrier.folder, barrier.name)
    return all(isinstance(text, str) and text.isprintable() and len(text) < 4096 for text in texts)


def hold(barrier: Barrier, place: str) -> None:
    """Wait at a place of the barrier, and say on stderr what went wrong there."""
    problem = barrier.wait(place)
    if problem:
        print(f"profiler-run: {problem}", file=sys.stderr)
