"""How often is the diagnosis right? `python -m tests.zoo.score [rounds] [script …]`.

With `--drawn DIR` the programs are those that `python -m tests.zoo.draw` wrote there (see `scoring/drawn.py`).

Each planted script is recorded as it stands, with the change that its first right suggestion asks for (the same number
of workers, the same share of the work), and with `--fixed`: one after the other, `rounds` times (3 unless told
otherwise), so that a change of the host's load meets all three. The analyser sees what the collector wrote and nothing
else. Printed: whether the first (and any of the first three) suggestions name the cause, whether healthy runs stay
silent, the predicted step against the one measured after the change, whether a plant is valid (fixing it gains at least
15 % and three times the spread of the base), and the totals.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.format.run import open_run
from collector.format.steps import summarize_steps
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis, Suggestion
from tests.zoo.cases import CASES, Case, follow
from tests.zoo.scoring.drawn import score_drawn

SILENT = ("info",)
"""Severities that do not count as an alarm: they state a fact and ask for nothing."""


@dataclass(frozen=True)
class Recording:
    """One run of a script: its mean step as the profiler gives it, and the time per step that the script printed."""

    step_ns: float
    printed_ms: float
    diagnosis: Diagnosis

    @property
    def advice(self) -> tuple[Suggestion, ...]:
        return tuple(s for s in self.diagnosis.suggestions if s.severity not in SILENT)


@dataclass(frozen=True)
class Round:
    """A script as it stands, after the suggestion, and fixed; the latter are None where there is nothing to record."""

    base: Recording
    followed: Recording | None
    fixed: Recording | None
    prediction: Suggestion | None

    def rank_of(self, accept: frozenset[str]) -> int | None:
        """Return the place of the first accepted suggestion, from 1."""
        return next((place for place, s in enumerate(self.base.advice, 1) if s.rule in accept), None)

    @property
    def error(self) -> float | None:
        """Predicted over measured step, less 1."""
        if self.prediction is None or self.followed is None or self.prediction.predicted_step_ns is None:
            return None
        return self.prediction.predicted_step_ns / self.followed.step_ns - 1.0

    @property
    def is_covered(self) -> bool | None:
        """Say whether the measured step lies in the range that was shown."""
        said = self.prediction
        if said is None or self.followed is None or said.predicted_low_ns is None or said.predicted_high_ns is None:
            return None
        return said.predicted_low_ns <= self.followed.step_ns <= said.predicted_high_ns


def record(case: Case, folder: Path, arguments: Sequence[str] = ()) -> Recording:
    command = [sys.executable, str(case.path), "--output", str(folder), "--steps", str(case.steps), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, timeout=600, text=True)
    run = open_run(folder)
    duration = summarize_steps(run.table("steps")).duration_ns
    if duration is None:
        raise SystemExit(f"{case.script} recorded no steps")
    printed = next(line for line in done.stdout.splitlines() if line.endswith("ms per step"))
    return Recording(duration.mean, float(printed.split()[0]), diagnose(run, run.ranks[0]))


def record_round(case: Case, folder: Path) -> Round:
    base = record(case, folder / "base")
    if not case.cause:
        return Round(base, None, None, None)
    said = next((s for s in base.advice if s.rule in case.accept and s.predicted_step_ns is not None), None)
    arguments = follow(said) if said is not None else ("--fixed",)
    fixed = record(case, folder / "fixed", ("--fixed",))
    followed = fixed if arguments == ("--fixed",) else record(case, folder / "followed", arguments)
    return Round(base, followed, fixed, said)


def is_valid_plant(rounds: Sequence[Round]) -> bool:
    """Judge by the time that the script printed: it has all that happens between the steps too."""
    base = [r.base.printed_ms for r in rounds]
    gain = statistics.median(base) - statistics.median(r.fixed.printed_ms for r in rounds if r.fixed is not None)
    spread = max(base) - min(base)
    return gain >= 0.15 * statistics.median(base) and gain >= 3 * spread


def print_case(case: Case, rounds: Sequence[Round]) -> None:
    base = statistics.median(r.base.step_ns for r in rounds) / 1e6
    named = [r.base.advice[0].rule if r.base.advice else "–" for r in rounds]
    if not case.cause:
        print(f"{case.script:8s} {'(healthy)':24s} base {base:6.1f} ms  said {named}", flush=True)
        return
    errors = [f"{r.error:+.0%}{'' if r.is_covered else ' outside'}" for r in rounds if r.error is not None]
    alarms = sorted({s.rule for r in rounds if r.fixed is not None for s in r.fixed.advice})
    followed = statistics.median(r.followed.step_ns for r in rounds if r.followed is not None) / 1e6
    print(
        f"{case.script:8s} {case.cause:24s} base {base:6.1f} ms  changed {followed:6.1f} ms  "
        f"places {[r.rank_of(case.accept) for r in rounds]}  first {named}  errors {errors}  "
        f"fixed {alarms or 'silent'}{'' if is_valid_plant(rounds) else '  PLANT NOT VALID'}",
        flush=True,
    )


def print_totals(results: Sequence[tuple[Case, list[Round]]]) -> None:
    """Print the totals over valid plants; what the fixed and the healthy runs say counts for all."""
    planted = [(case, r) for case, rounds in results if case.cause and is_valid_plant(rounds) for r in rounds]
    places = [r.rank_of(case.accept) for case, r in planted]
    healthy = [r.fixed or r.base for case, rounds in results for r in rounds]
    silent = sum(not recording.advice for recording in healthy)
    errors = [abs(r.error) for _, r in planted if r.error is not None]
    ranges = [r.is_covered for _, r in planted if r.is_covered is not None]
    first, third = (sum(p is not None and p <= most for p in places) for most in (1, 3))
    print(f"top-1 {first}/{len(places)}  top-3 {third}/{len(places)}")
    print(f"healthy runs silent {silent}/{len(healthy)}")
    if errors:
        print(
            f"error of the predicted step: mean {statistics.mean(errors):.1%}, median {statistics.median(errors):.1%}, "
            f"within 15 % {sum(e <= 0.15 for e in errors)}/{len(errors)}; "
            f"measured step inside the range {sum(ranges)}/{len(ranges)}"
        )
    print(f"load of the host at the end {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    if "--drawn" in sys.argv:
        score_drawn(sys.argv[1:])
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    wanted = set(sys.argv[2:])
    results = []
    for case in (case for case in CASES if not wanted or case.script in wanted):
        with tempfile.TemporaryDirectory() as folder:
            results.append((case, [record_round(case, Path(folder, str(number))) for number in range(rounds)]))
        print_case(*results[-1])
    print_totals(results)


if __name__ == "__main__":
    main()
