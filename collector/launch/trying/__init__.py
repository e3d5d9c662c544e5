"""Try changes to a training on the script itself, in turns: the gain is measured, not predicted.

A first run is recorded. Its figures show which changes are worth a trial. A trial is a process of the script with one
change at a time. Everything that a trial writes goes to a scratch folder, which is removed. Must not be imported by
code that runs in a training.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from collector import server
from collector.edge import say
from collector.ending import SIGNALLED, unwind_at_signals
from collector.environment import DEFAULT_PATH
from collector.format.run import open_run
from collector.format.schema.errors import RunError, UsageError
from collector.format.schema.removal import scratch_folder
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import replace_text
from collector.format.steps import select_steps
from collector.launch.children import LOG_FILE, make_printable, read_log_end, refuse_output
from collector.launch.launchers import find_launcher
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.script import Program
from collector.launch.trying.applying import Candidate, Change
from collector.launch.trying.inside import TRIAL_VARIABLE, Plan, Span
from collector.launch.trying.process import Crew, Neighbours, TurnFailed, TurnTaker
from collector.launch.trying.report import describe, list_results
from collector.launch.trying.search import TOGETHER, OutOfTime, Search, TrialFailed
from collector.launch.trying.turns import Life, Turn

USUAL_BUDGET_S = 300.0
FIRST, FEW_STEPS = Span(70, 16, 20.0), 8
"""The turn that is recorded, and how many updates a script must have."""
EPOCH_FRAC = 0.02
"""Turns cover whole epochs if the beginning of an epoch takes at least this share of it."""
_HANGS_S = 30.0
_SLOW = 10.0
RESULTS_FILE = "tried.json"
FIRST_FOLDER = "as-it-is"
_LONGEST_REASON = 160
_MOST_MEMORY_FRAC = 0.6
"""All processes together take at most this share of the free memory."""
_MAY_WRITE = "a trial may write by Python in the script's own process only"
_ERROR = re.compile(r"(?:\[rank\d+\]: )?([A-Za-z_][\w.]*(?:Error|Exception)\b.*)")


@dataclass(frozen=True)
class Trying:
    """The settings of `stepscope run --try`. `budget_s` is in seconds; `output` is the folder of the results, None for a
    new folder.
    """

    program: Program
    budget_s: float
    output: str | None = None


def try_changes(trying: Trying) -> int:
    """Try changes and print the gain of each. Return 0, or 2 if nothing could be tried; stderr then has the reason.

    Raises UsageError or OutputError if the search cannot begin.
    """
    output = _make_output(trying.output)
    try:
        with unwind_at_signals(), scratch_folder() as scratch, Crew() as crew:
            return _Trials(trying, output, scratch, crew).run()
    except TrialFailed as error:
        say(f"nothing can be tried: {error}")
        return 2
    except KeyboardInterrupt:
        say("broken off")
        return SIGNALLED + signal.SIGINT


class _Trials:
    def __init__(self, trying: Trying, output: Path, scratch: Path, crew: Crew) -> None:
        self._trying = trying
        self._output = output
        self._scratch = scratch
        self._crew = crew
        self._end = time.monotonic() + trying.budget_s
        self._started = 0
        self._usual_s = trying.budget_s
        self._most_bytes = 0
        self._is_guarded = True

    def run(self) -> int:
        limit = _format_time(self._trying.budget_s)
        say(f"processes of the script run by turns for {limit} at most, each for some updates")
        say(f"each has {TRIAL_VARIABLE}=1 in its environment; what it writes is thrown away")
        neighbours = Neighbours()
        folder = self._output / FIRST_FOLDER
        found = self._look(folder)
        candidates = list_candidates(folder)
        if not found["is_guarded"]:
            say("this system cannot refuse writes: what libraries in C write is not thrown away")
        if busy := neighbours.describe():
            say(busy)
        say(
            f"{format_number_of(len(candidates), 'change')} to try, up to {TOGETHER} at a time; {self._format_left()} left"
        )
        if candidates:
            self._warm_up(found)
        search, code = Search(self._start, self._note, self._count_left, lambda: self._count_together(found)), 0
        search.epoch = count_epoch(folder)
        try:
            search.run(candidates)
        except KeyboardInterrupt:
            code = SIGNALLED + signal.SIGINT
        if not search.bases:
            raise TrialFailed("a second process did not fit into the time; give a larger --budget")
        print("\n".join(["", *list_results(search, found["places"]), *filter(None, [neighbours.describe()])]))
        others, idle = neighbours.count()
        results = {**describe(search), "others_cores": others, "idle_cores": idle}
        replace_text(self._output / RESULTS_FILE, json.dumps(results, indent=1))
        say(f"the figures are in {self._output / RESULTS_FILE}")
        return code

    def _look(self, folder: Path) -> dict[str, Any]:
        begun = time.monotonic()
        player = _Player(self, {}, folder, records=True)
        try:
            turn = player.play(FIRST)
        except OutOfTime:
            needed = f"a run needs more than {_format_time(self._trying.budget_s)}, the whole --budget"
            raise TrialFailed(f"{needed}; what it printed is in {folder / LOG_FILE}") from None
        finally:
            player.end()
        if len(turn.steps_ns) < FEW_STEPS - 1:
            raise TrialFailed(_explain_few())
        self._usual_s = time.monotonic() - begun
        return player.report

    def _warm_up(self, found: Mapping[str, Any]) -> None:
        """Let trials be forks of a Python that has imported PyTorch, if a fork can stand for a fresh start. `found` are
        facts of the recorded run.
        """
        if (
            find_launcher(self._trying.program) is None
            and sys.platform == "linux"
            and not found["uses_device"]
            and found["ranks"] == 1
            and "torch" in found["imports"]
        ):
            environment = {**_make_environment(None, self._scratch), **found["environment"]}
            self._crew.warm_up(found["imports"], environment, self._scratch / LOG_FILE)

    def _count_left(self) -> float:
        return self._end - time.monotonic()

    def _count_together(self, found: Mapping[str, Any]) -> int:
        """Return how many changes may run at once beside the unchanged script: one on a device, else as many as fit
        into memory. `found` are facts of the recorded run.
        """
        free = psutil.virtual_memory().available * _MOST_MEMORY_FRAC
        return 1 if found["uses_device"] else max(1, min(TOGETHER, int(free / max(self._most_bytes, 1)) - 1))

    def _start(self, change: Change) -> _Player:
        return _Player(self, change, self._scratch / f"trial-{self._started}")

    def _note(self, label: str, found: Life | str) -> None:
        text = found if isinstance(found, str) else f"a step of {server.format_duration(found.step_ns)}"
        say(f"[{self._format_left()} left] {label}: {text}")

    def _format_left(self) -> str:
        return _format_time(max(self._count_left(), 0.0))

    def start(self, player: _Player, first: Span) -> TurnTaker:
        folder = player.folder
        folder.mkdir(exist_ok=True)
        own, cache = self._scratch / f"of-{folder.name}", self._scratch / "cache"
        (own / "tmp").mkdir(parents=True)
        cache.mkdir(exist_ok=True)
        plan = Plan(dict(player.change), asdict(first), str(own), str(folder), str(cache), player.records)
        words = [f"--output={folder}", *self._trying.program.words]
        self._started += 1
        return self._crew.start(words, _make_environment(plan, self._scratch), folder, folder / LOG_FILE)

    def limit(self, player: _Player) -> tuple[float, bool]:
        """Return the time limit of a turn in seconds, and whether this limit is the rest of the whole search's time.
        Raises OutOfTime.
        """
        left_s = self._count_left()
        if left_s <= 0:
            raise OutOfTime
        # A compiler may take long. Anything else that takes long hangs.
        limit_s = left_s if "compile" in player.change or player.records else _SLOW * self._usual_s + _HANGS_S
        return min(limit_s, left_s), limit_s >= left_s

    def end(self, member: TurnTaker) -> None:
        self._most_bytes = max(self._most_bytes, member.count_bytes())
        self._crew.end(member)


class _Player:
    """A process of the script with one change; implements `Player` of the search."""

    def __init__(self, trials: _Trials, change: Change, folder: Path, records: bool = False) -> None:
        self._trials = trials
        self.change = change
        self.folder = folder
        self.records = records
        self.report: dict[str, Any] = {}
        self._member: TurnTaker | None = None

    def play(self, span: Span) -> Turn:
        """Let the process run for a turn. Raises TrialFailed or OutOfTime."""
        limit_s, is_all = self._trials.limit(self)
        try:
            if self._member is None:
                self._member = self._trials.start(self, span)
                self.report = self._member.wait(limit_s)
            else:
                self.report = self._member.take(span, limit_s)
        except TurnFailed as error:
            if error.code == 0:
                return Turn((), is_over=True)
            if error.code is None and is_all:
                raise OutOfTime from None
            raise TrialFailed(_explain(error.code, limit_s, self.folder / LOG_FILE)) from None
        return read_turn(self.report)

    def end(self) -> None:
        if self._member is not None:
            self._trials.end(self._member)
            self._member = None


def list_candidates(folder: Path) -> list[Candidate]:
    """Return the changes that may shorten the step of the run in `folder`, the largest possible gain first. Changes
    with long trials come last.

    Raises TrialFailed if the run cannot be read.
    """
    try:
        run = open_run(folder)
        changes = [each for each in server.list_changes(run, run.rank().rank) if each.change]
    except RunError as error:
        raise TrialFailed(str(error)) from None
    found = [
        Candidate(
            each.knob, each.label, each.change, each.code, each.place, each.keywords, each.is_slow, each.bound_frac
        )
        for each in changes
    ]
    return sorted(found, key=lambda each: each.is_slow)


def count_epoch(folder: Path) -> int:
    """Return the number of steps in an epoch of the run in `folder`, if the beginning of an epoch takes much of it;
    else 0. The first epoch does not count.

    Raises TrialFailed if the run cannot be read.
    """
    try:
        chosen = select_steps(open_run(folder).rank().table("steps"))
    except RunError as error:
        raise TrialFailed(str(error)) from None
    first = np.flatnonzero(chosen.first_of_epoch)
    if len(first) < 2 or not chosen.regular.any():
        return 0
    steps, usual_ns = int(np.median(np.diff(first))), float(np.median(chosen.duration_ns[chosen.regular]))
    begun_ns = float(np.mean(chosen.duration_ns[first[1:]])) - usual_ns
    return steps if begun_ns >= EPOCH_FRAC * steps * usual_ns else 0


def _make_environment(plan: Plan | None, scratch: Path) -> dict[str, str]:
    cache = scratch / "cache"
    return {
        "PYTHONHASHSEED": "0",
        **os.environ,
        TRIAL_VARIABLE: "1",
        **({PLAN_VARIABLE: plan.encode()} if plan is not None else {}),
        "TMPDIR": str(Path(plan.scratch) / "tmp" if plan is not None else scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "PROFILER_VERDICT": "0",
        "WANDB_MODE": "disabled",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _format_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:g} min" if seconds % 60 == 0 else f"{seconds // 60:.0f}:{seconds % 60:02.0f} min"


def _explain_few() -> str:
    return f"the script ended before {FEW_STEPS} updates of an optimizer in its own process"


def _explain(code: int | None, limit_s: float, log: Path) -> str:
    if code is None:
        return f"it did not reach its end in {limit_s:.0f} s"
    lines = [line for line in read_log_end(log) if not line.startswith("stepscope:")]
    errors = [found[1] for line in lines if (found := _ERROR.match(line)) and "ChildFailedError" not in line]
    last = make_printable(["", *lines[-1:], *errors[-1:]][-1])
    hint = f" ({_MAY_WRITE})" if "Permission denied" in last else ""
    return f"exit code {code}: {last[:_LONGEST_REASON]}{'…' if len(last) > _LONGEST_REASON else ''}{hint}"


def read_turn(report: Mapping[str, Any]) -> Turn:
    """Return the turn that a process reports: the times between updates, the losses, and whether the script ended."""
    steps, losses = (tuple(float(value) for value in report[name]) for name in ("steps_ns", "losses"))
    return Turn(steps, losses, bool(report["is_over"]))


def _make_output(given: str | None) -> Path:
    output = Path(given or Path(DEFAULT_PATH) / f"tried-{datetime.now():%Y%m%d-%H%M%S}").expanduser().absolute()
    if (output / RESULTS_FILE).exists() or (output / FIRST_FOLDER).exists():
        raise UsageError(f"{output} holds earlier trials; choose another -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refuse_output(output, error) from None
    return output
