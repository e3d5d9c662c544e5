"""Changes to a training, tried on the script itself by turns: the gain is measured, not predicted.

The script runs many times for some steps each, with one change at a time. A first run is recorded, and its figures say
what may be worth a trial. Each trial is a process of its own that ends after its steps. Whatever it writes goes to a
scratch folder that is removed. Must not be imported by code that runs in a training.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from collector import server
from collector.ending import SIGNALLED, unwind_at_signals
from collector.format.schema.errors import RunError, UsageError
from collector.format.schema.removal import scratch_folder
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import replace_text
from collector.launch.activation import DEFAULT_PATH
from collector.launch.children import LOG_FILE, refuse_output, say
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.script import Program
from collector.launch.trying.applying import Change
from collector.launch.trying.inside import RESULT_FILE, TRIAL_VARIABLE, Plan
from collector.launch.trying.knobs import Seen, list_candidates
from collector.launch.trying.search import OutOfTime, Search, Trial, TrialFailed, Tried

USUAL_BUDGET_S = 300.0
STEPS, WARM_UP, LEAST_STEPS = 70, 10, 20
LONGEST_S = 20.0
"""A trial ends after so many seconds of steps, or after its steps."""
START_S = 120.0
"""The least time that a script has until its first step, whatever it needed at first."""
RESULTS_FILE = "tried.json"
_LONGEST_REASON = 160


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
    except KeyboardInterrupt:
        say("broken off")
        return SIGNALLED + signal.SIGINT


class _Trials:
    def __init__(self, trying: Trying, output: Path, scratch: Path) -> None:
        self._trying = trying
        self._output = output
        self._scratch = scratch
        self._begun = time.monotonic()
        self._count = 0
        self._usual_s = 0.0
        self._is_guarded = True

    def run(self) -> int:
        say(
            f"the script runs many times for at most {STEPS} updates each, in {self._trying.budget_s / 60:g} minutes in all; "
            f"each run is stopped early, {TRIAL_VARIABLE}=1 is in its environment, and what it writes is thrown away"
        )
        try:
            seen = self._look()
        except TrialFailed as error:
            say(f"nothing can be tried: {error}")
            return 2
        candidates = list_candidates(seen)
        if not self._is_guarded:
            say(
                "this system cannot refuse writes: what Python code writes is thrown away, what libraries in C write is not"
            )
        say(f"{format_number_of(len(candidates), 'change')} to try; a run takes about {self._usual_s:.0f} s")
        search = Search(lambda change: self._measure(change, self._usual_s), self._note)
        try:
            search.run(candidates)
        except TrialFailed as error:
            say(f"the script cannot be tried as it is: {error}")
            return 2
        _report(search)
        replace_text(self._output / RESULTS_FILE, json.dumps(describe(search), indent=1))
        say(f"the figures are in {self._output / RESULTS_FILE}")
        return 0

    def _look(self) -> Seen:
        """Record a run as it is, and return what may be worth a trial. Raises TrialFailed."""
        folder = self._output / "as-it-is"
        begun = time.monotonic()
        self._start({}, folder, START_S + self._trying.budget_s / 2, records=True)
        self._usual_s = time.monotonic() - begun
        return read_seen(folder)

    def _measure(self, change: Change, usual_s: float) -> Trial:
        if time.monotonic() - self._begun + usual_s > self._trying.budget_s:
            raise OutOfTime
        self._count += 1
        folder = self._scratch / f"trial-{self._count}"
        folder.mkdir()
        result = self._start(change, folder, START_S + 3 * usual_s)
        return read_trial(result)

    def _start(self, change: Change, folder: Path, limit_s: float, records: bool = False) -> dict[str, Any]:
        folder.mkdir(exist_ok=True)
        own = self._scratch / f"of-{folder.name}"
        (own / "tmp").mkdir(parents=True)
        plan = Plan(dict(change), STEPS, LEAST_STEPS, LONGEST_S, str(own), str(folder), records)
        environment = {
            **os.environ,
            TRIAL_VARIABLE: "1",
            PLAN_VARIABLE: plan.encode(),
            "TMPDIR": str(own / "tmp"),
            "PROFILER_VERDICT": "0",
            "WANDB_MODE": "disabled",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = [sys.executable, "-m", "collector.launch", f"--output={folder}", *self._trying.program.words]
        log = folder / LOG_FILE
        with log.open("wb") as file:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # its workers, and itself if it takes too long
            process.wait()
        try:
            found: dict[str, Any] = json.loads((folder / RESULT_FILE).read_text())
        except (OSError, ValueError):
            raise TrialFailed(_explain(code, limit_s, log)) from None
        self._is_guarded &= bool(found.get("is_guarded"))
        return found

    def _note(self, label: str, found: Trial | str) -> None:
        left_s = max(self._trying.budget_s - (time.monotonic() - self._begun), 0.0)
        text = found if isinstance(found, str) else f"a step of {server.format_duration(found.step_ns)}"
        say(f"{label}: {text} ({left_s:.0f} s left)")


def _explain(code: int | None, limit_s: float, log: Path) -> str:
    if code is None:
        return f"it did not reach its end in {limit_s:.0f} s"
    lines = [line for line in log.read_bytes()[-8000:].decode("utf-8", "replace").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("profiler-run:", "stepscope:"))]
    last = "".join(letter if letter.isprintable() else "?" for letter in (lines[-1] if lines else ""))
    if code == 0:
        return f"it ended before {LEAST_STEPS} updates of an optimizer"
    return f"it failed with exit code {code}: {last[:_LONGEST_REASON]}"


def read_trial(result: dict[str, Any]) -> Trial:
    """Return the mean time between updates after the warm-up. Raises TrialFailed with too few."""
    ends = [int(value) for value in result["ends_ns"]]
    begin = min(WARM_UP, len(ends) // 4)
    if len(ends) - begin < 5:
        raise TrialFailed("it has too few updates of an optimizer")
    return Trial((ends[-1] - ends[begin]) / (len(ends) - 1 - begin), tuple(float(value) for value in result["losses"]))


def read_seen(folder: Path) -> Seen:
    """Return what the recorded run shows. Raises TrialFailed if it cannot be read."""
    from collector.environment import count_usable_cores
    from collector.format.rank import read_step_rows
    from collector.format.run import open_run
    from collector.format.steps import summarize_phases

    try:
        run = open_run(folder)
        rank = run.rank()
        shares = {phase.name: phase.share_frac for phase in summarize_phases(read_step_rows(rank).steps)}
        names = (
            rank.table("operators", ("name",))["name"].to_pylist() if rank.status("operators").state == "there" else []
        )
        manifest = rank.manifest
    except RunError as error:
        raise TrialFailed(str(error)) from None
    loader = max(manifest.loaders, key=lambda each: each.num_workers or 0, default=None)
    asked: dict[str, Any] = {}
    with suppress(Exception):  # advice only sets the order
        for suggestion in server.diagnose(run, rank.rank)[1]:
            asked = {**suggestion.settings, **asked}
    optimizers = manifest.facts.get("optimizers")
    return Seen(
        cores=int(manifest.usable_cores or count_usable_cores() or 1),
        threads=manifest.torch_threads,
        workers=loader.num_workers if loader is not None else None,
        prefetch=loader.prefetch_factor if loader is not None else None,
        persistent=bool(loader.persistent_workers) if loader is not None else False,
        waits_frac=shares.get("data_wait", 0.0),
        update_frac=shares.get("optimizer", 0.0),
        compute_frac=shares.get("forward", 0.0) + shares.get("backward", 0.0),
        operators=frozenset(filter(None, names)),
        optimizers=tuple(each for each in optimizers if isinstance(each, dict)) if isinstance(optimizers, list) else (),
        facts=manifest.facts,
        uses_device=bool(manifest.devices),
        ranks=run.manifest.world_size,
        asked=asked,
    )


def describe(search: Search) -> dict[str, Any]:
    """Return the results as JSON. Times are ns, gains are shares of the step."""
    return {
        "format": "stepscope-tried",
        "version": 1,
        "runs_as_it_is_ns": [base.step_ns for base in search.bases],
        "scatter_frac": search.scatter,
        "best": list(_list_labels(search.best)) if search.best is not None else [],
        "tried": [_describe_one(search, entry) for entry in search.tried],
    }


def _list_labels(entry: Tried) -> Sequence[str]:
    return [candidate.label for candidate in entry.candidates]


def _describe_one(search: Search, entry: Tried) -> dict[str, Any]:
    low, high = entry.bound_gain(search.scatter) if entry.logs else (None, None)
    return {
        "changes": list(_list_labels(entry)),
        "code": [candidate.code for candidate in entry.candidates],
        "change": dict(entry.change),
        "runs": len(entry.logs),
        "gain_frac": entry.gain_frac if entry.logs else None,
        "low_frac": low,
        "high_frac": high,
        "failure": entry.failure,
        "is_same_bits": entry.is_same_bits,
        "loss_difference_frac": entry.loss_frac,
    }


def _report(search: Search) -> None:
    shown = sorted(search.tried, key=lambda entry: -entry.gain_frac if entry.logs else 1.0)
    lines = [_line_up(search, entry) for entry in shown]
    print("\n".join(["", "What each change gained, measured on this script:", *lines]))
    if search.best is None:
        print("\nNo change gained surely. The step stays as it is.")
        return
    base = sum(each.step_ns for each in search.bases) / len(search.bases)
    step = server.format_duration(base * (1.0 - search.best.gain_frac))
    print(f"\nBest: {search.best.label}, a step of {step} instead of {server.format_duration(base)}. Write:")
    for candidate in search.best.candidates:
        print(f"  {candidate.code}")
    if search.best.loss_frac is not None and not search.best.is_same_bits:
        print(
            f"The loss at the end of the trial differs by {100 * search.best.loss_frac:.2g} % from that without the change."
        )


def _line_up(search: Search, entry: Tried) -> str:
    if not entry.logs:
        return f"  {entry.label:<40} {entry.failure or 'not tried: the time was over'}"
    low, high = entry.bound_gain(search.scatter)
    bits = "same losses" if entry.is_same_bits else "losses differ"
    gain = f"{100 * entry.gain_frac:+6.1f} %  ({100 * low:.1f} to {100 * high:.1f})"
    return f"  {entry.label:<40} {gain:<28} {format_number_of(len(entry.logs), 'run')}, {bits}"


def _make_output(given: str | None) -> Path:
    output = Path(given or Path(DEFAULT_PATH) / f"tried-{datetime.now():%Y%m%d-%H%M%S}").expanduser().absolute()
    if (output / RESULTS_FILE).exists() or (output / "as-it-is").exists():
        raise UsageError(f"{output} holds earlier trials; choose another -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refuse_output(output, error) from None
    return output
