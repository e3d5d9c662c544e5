"""Changes to a training, tried on the script itself by turns: the gain is measured, not predicted.

The script runs many times for some steps each, with one change at a time. A first run is recorded, and its figures say
what may be worth a trial. Each trial is a process of its own that ends after its steps. Whatever it writes goes to a
scratch folder that is removed. Must not be imported by code that runs in a training.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from collector import server
from collector.ending import SIGNALLED, unwind_at_signals
from collector.format.schema.errors import UsageError
from collector.format.schema.removal import scratch_folder
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import replace_text
from collector.launch.activation import DEFAULT_PATH
from collector.launch.children import LOG_FILE, refuse_output, say
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.script import Program
from collector.launch.trying.applying import Change
from collector.launch.trying.inside import RESULT_FILE, TRIAL_VARIABLE, Plan
from collector.launch.trying.process import Neighbours, run_process
from collector.launch.trying.report import describe, list_results
from collector.launch.trying.search import EVERY, MOST_FINALISTS, ROUNDS, OutOfTime, Search, Trial, TrialFailed
from collector.launch.trying.seen import list_candidates

USUAL_BUDGET_S = 300.0
STEPS, LEAST_STEPS, FEW_STEPS = 70, 16, 8
"""Updates of a trial, and how many it has at least: fewer where one takes longer than `_LONG_STEP_NS`."""
_LONG_STEP_NS = 1e9
LONGEST_S, SHORTEST_S = 20.0, 2.0
"""A trial ends after its steps, or after so many seconds of steps, according to the budget."""
_HANGS_S = 30.0
_SLOWER = 1.5
RESULTS_FILE = "tried.json"
FIRST_FOLDER = "as-it-is"
_LONGEST_REASON = 160
_MAY_WRITE = "a trial may write by Python in the script's own process only"
_ERROR = re.compile(r"(?:\[rank\d+\]: )?([A-Za-z_][\w.]*(?:Error|Exception)\b.*)")


@dataclass(frozen=True)
class Trying:
    """The settings of `profiler-run --try`. `budget_s` is in seconds."""

    program: Program
    budget_s: float
    output: str | None = None


def try_changes(trying: Trying) -> int:
    """Try changes and print what each gained. Return 0, or 2 if nothing could be tried, with the reason on stderr.

    Raises UsageError or OutputError if it cannot begin.
    """
    output = _make_output(trying.output)
    try:
        with unwind_at_signals(), scratch_folder() as scratch:
            return _Trials(trying, output, scratch).run()
    except TrialFailed as error:
        say(f"nothing can be tried: {error}")
        return 2
    except KeyboardInterrupt:
        say("broken off")
        return SIGNALLED + signal.SIGINT


class _Trials:
    def __init__(self, trying: Trying, output: Path, scratch: Path) -> None:
        self._trying = trying
        self._output = output
        self._scratch = scratch
        self._end = time.monotonic() + trying.budget_s
        self._seconds = LONGEST_S
        self._least = FEW_STEPS
        self._runs = 0
        self._expected = 0
        self._durations_s: list[float] = []
        self._is_guarded = True

    def run(self) -> int:
        say(
            f"the script runs again and again for {_format_time(self._trying.budget_s)}, each time for {STEPS} updates at most"
        )
        say(f"each run has {TRIAL_VARIABLE}=1 in its environment; what it writes is thrown away")
        neighbours = Neighbours()
        folder = self._output / FIRST_FOLDER
        found = self._look(folder)
        candidates = list_candidates(folder)
        if not self._is_guarded:
            say("this system cannot refuse writes: what libraries in C write is not thrown away")
        if busy := neighbours.describe():
            say(busy)
        self._plan(len(candidates), found)
        search, code = Search(self._measure, self._note), 0
        try:
            search.run(candidates)
        except KeyboardInterrupt:
            code = SIGNALLED + signal.SIGINT
        if not search.bases:
            raise TrialFailed("a second run did not fit into the time; give a larger --budget")
        print("\n".join(["", *list_results(search, found["places"]), *filter(None, [neighbours.describe()])]))
        others, idle = neighbours.count()
        results = {**describe(search), "others_cores": others, "idle_cores": idle}
        replace_text(self._output / RESULTS_FILE, json.dumps(results, indent=1))
        say(f"the figures are in {self._output / RESULTS_FILE}")
        return code

    def _look(self, folder: Path) -> dict[str, Any]:
        """Record a run as it is. Raises TrialFailed."""
        try:
            return self._start({}, folder, self._trying.budget_s, records=True)
        except OutOfTime:
            needed = f"a run needs more than {_format_time(self._trying.budget_s)}, the whole --budget"
            raise TrialFailed(f"{needed}; what it printed is in {folder / LOG_FILE}") from None

    def _plan(self, count: int, first: Mapping[str, Any]) -> None:
        """Shorten the trials as far as the budget asks for it, and say how many there will be."""
        finalists = min(count, MOST_FINALISTS)
        rounds = [count, *[finalists] * (ROUNDS - 1), *([1] * ROUNDS if count > 1 else [])]
        self._expected = 1 + sum(each + math.ceil(each / EVERY) for each in rounds)
        if statistics.median(read_trial(first).steps_ns) < _LONG_STEP_NS:
            self._least = min(LEAST_STEPS, len(first["ends_ns"]))
        steps_s = (first["ends_ns"][-1] - first["ends_ns"][0]) / 1e9
        start_s = self._durations_s[0] - steps_s
        self._seconds = min(max((self._end - time.monotonic()) / self._expected - start_s, SHORTEST_S), LONGEST_S)
        self._durations_s[0] = usual_s = start_s + min(steps_s, self._seconds)
        fitting = int((self._end - time.monotonic()) / usual_s)
        enough = (
            f"; all need --budget {math.ceil(self._expected * usual_s / 60) + 1}m" if fitting < self._expected else ""
        )
        self._expected, self._runs = min(self._expected, fitting), 0
        runs = format_number_of(self._expected, "run")
        say(f"{format_number_of(count, 'change')} to try in up to {runs} of about {usual_s:.0f} s{enough}")

    def _measure(self, change: Change) -> Trial:
        usual_s = statistics.median(self._durations_s[-5:])
        left_s = self._end - time.monotonic()
        if left_s < usual_s:
            raise OutOfTime
        folder = self._scratch / f"trial-{self._runs}"
        # A compiler takes its time, anything else that takes long hangs.
        limit_s = left_s if "compile" in change else 3 * usual_s + _HANGS_S
        trial = read_trial(self._start(change, folder, limit_s))
        if not change:  # what is much slower than the script as it is ends after fewer updates
            self._seconds = min(self._seconds, _SLOWER * sum(trial.steps_ns) / 1e9)
        return trial

    def _start(self, change: Change, folder: Path, limit_s: float, records: bool = False) -> dict[str, Any]:
        folder.mkdir(exist_ok=True)
        own, cache = self._scratch / f"of-{folder.name}", self._scratch / "cache"
        (own / "tmp").mkdir(parents=True)
        cache.mkdir(exist_ok=True)
        plan = Plan(dict(change), STEPS, self._least, self._seconds, str(own), str(folder), str(cache), records)
        words = [sys.executable, "-m", "collector.launch", f"--output={folder}", *self._trying.program.words]
        log, result = folder / LOG_FILE, folder / RESULT_FILE
        begun = time.monotonic()
        left_s = self._end - begun
        code = run_process(words, _make_environment(plan), log, result, min(limit_s, left_s))
        self._runs += 1
        try:
            found: dict[str, Any] = json.loads(result.read_text())
        except (OSError, ValueError):
            if code is None and limit_s >= left_s:
                raise OutOfTime from None
            raise TrialFailed(_explain(code, limit_s, log)) from None
        self._durations_s.append(time.monotonic() - begun)
        self._is_guarded &= bool(found["is_guarded"])
        return found

    def _note(self, label: str, found: Trial | str) -> None:
        text = found if isinstance(found, str) else f"a step of {server.format_duration(found.step_ns)}"
        left = _format_time(max(self._end - time.monotonic(), 0.0))
        say(f"[{self._runs} of {max(self._expected, self._runs)}, {left} left] {label}: {text}")


def _make_environment(plan: Plan) -> dict[str, str]:
    cache = Path(plan.cache)
    return {
        "PYTHONHASHSEED": "0",
        **os.environ,
        TRIAL_VARIABLE: "1",
        PLAN_VARIABLE: plan.encode(),
        "TMPDIR": str(Path(plan.scratch) / "tmp"),
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


def _explain(code: int | None, limit_s: float, log: Path) -> str:
    if code is None:
        return f"it did not reach its end in {limit_s:.0f} s"
    if code == 0:
        return f"the script ended before {FEW_STEPS} updates of an optimizer in its own process"
    lines = [line for line in log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("profiler-run:", "stepscope:"))]
    errors = [found[1] for line in lines if (found := _ERROR.match(line)) and "ChildFailedError" not in line]
    last = "".join(letter if letter.isprintable() else "?" for letter in ["", *lines[-1:], *errors[-1:]][-1])
    hint = f" ({_MAY_WRITE})" if "Permission denied" in last else ""
    return f"exit code {code}: {last[:_LONGEST_REASON]}{'…' if len(last) > _LONGEST_REASON else ''}{hint}"


def read_trial(result: Mapping[str, Any]) -> Trial:
    """Return the times between updates, and the losses."""
    ends = result["ends_ns"]
    steps = tuple(float(end - begin) for begin, end in itertools.pairwise(ends))
    return Trial(steps, tuple(float(value) for value in result["losses"]))


def _make_output(given: str | None) -> Path:
    output = Path(given or Path(DEFAULT_PATH) / f"tried-{datetime.now():%Y%m%d-%H%M%S}").expanduser().absolute()
    if (output / RESULTS_FILE).exists() or (output / FIRST_FOLDER).exists():
        raise UsageError(f"{output} holds earlier trials; choose another -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refuse_output(output, error) from None
    return output
