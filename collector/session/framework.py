"""The run that the events of a framework begin and end. The doors of `stepscope` to training frameworks stand on it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.edge import attempt, log_failure
from collector.environment import DEFAULT_PATH, PATH_VARIABLE
from collector.options import parse_options
from collector.session.profiler import Profiler, active_profiler

_MOST_LETTERS = 80
_begun: dict[str, Profiler] = {}
"""The Profilers that events began and none has ended, by door."""
_taken: Counter[str] = Counter()
"""How many runs this process has begun at each path."""


@dataclass(frozen=True)
class FrameworkRun:
    """What a door records where its framework says that a training begins. It may be pickled and copied at any time.

    `output_path` and `options` are those of Profiler. Raises OptionError for an option that Profiler does not take.
    """

    door: str
    output_path: str | os.PathLike[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_options(self.options)

    def begin(self, find_name: Callable[[], str]) -> None:
        """Begin to record on this thread, unless another Profiler records already.

        Without a path the run is named by `find_name`. A training of the same door that no event has ended ends first:
        an error has left it.
        """
        with log_failure("this training is not recorded"):
            live = active_profiler()
            if live is not None and live is _begun.pop(self.door, None):
                live.analyse()
            elif live is not None:
                return
            _begun[self.door] = Profiler(_choose_path(self.output_path, find_name, self.door), **self.options)

    def end(self, error: BaseException | None = None) -> None:
        """End the run that the door has begun, with the error that ended the training. Repeated calls are harmless."""
        profiler = _begun.pop(self.door, None)
        if profiler is not None:
            with log_failure("the run is not complete"):
                profiler.__exit__(type(error) if error else None, error, None)


def _choose_path(given: str | os.PathLike[str] | None, find_name: Callable[[], str], otherwise: str) -> str:
    """Return the path of a run: the given path, PROFILER_OUTPUT_PATH, or a folder of its name in the default folder.

    The second run of this process at a path gets the path with -2.
    """
    path = os.fsdecode(given or os.environ.get(PATH_VARIABLE) or "")
    if not path:
        path = os.path.join(DEFAULT_PATH, _spell_folder(attempt(find_name) or "") or otherwise)
    place = os.path.abspath(path)
    _taken[place] += 1
    number = f"-{_taken[place]}" if _taken[place] > 1 else ""
    return re.sub(r"(\.json(\.gz)?)?$", rf"{number}\g<0>", path, count=1)


def _spell_folder(name: str) -> str:
    """Return a name of a framework as the name of a folder; "" if no letter is left."""
    return re.sub(r"[^\w.+-]+|\.json\b", "-", name).strip("-.")[:_MOST_LETTERS]
