"""How often is the diagnosis right? `python -m tests.zoo.score [rounds] [script …]`.

Each planted script is recorded as it stands and with `--fixed`, interleaved, `rounds` times (3 unless told otherwise).
The analyser sees what the collector wrote and nothing else. Printed: whether the first (and any of the first three)
suggestions name the cause, whether the fixed twin stays silent, the predicted step against the measured one, whether
the plant is valid (its gain is at least 15 % and three times the spread of the base), and the totals.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.run import open_run
from profiler_server.analysis.results import Diagnosis, Suggestion
from profiler_server.analysis.steps import summarize_steps
from profiler_server.diagnosis.judging import diagnose
from tests.zoo.cases import CASES, Case

SILENT = ("info",)
"""Severities that do not count as an alarm: they state a fact and ask for nothing."""


@dataclass(frozen=True)
class Recording:
    mean_ns: float
    diagnosis: Diagnosis

    @property
    def advice(self) -> tuple[Suggestion, ...]:
        return tuple(s for s in self.diagnosis.suggestions if s.severity not in SILENT)


@dataclass(frozen=True)
class Round:
    """One recording of a script and one of its fixed twin, made one after the other."""

    base: Recording
    fixed: Recording

    def rank_of(self, accept: frozenset[str]) -> int | None:
        """Return the place of the first accepted suggestion, from 1."""
        return next((place for place, s in enumerate(self.base.advice, 1) if s.rule in accept), None)

    def prediction(self, accept: frozenset[str]) -> Suggestion | None:
        return next((s for s in self.base.advice if s.rule in accept and s.predicted_step_ns is not None), None)


def record(case: Case, folder: Path, fixed: bool) -> Recording:
    command = [sys.executable, str(case.path), "--output", str(folder), "--steps", str(case.steps)]
    subprocess.run(command + ["--fixed"] * fixed, check=True, capture_output=True, timeout=600)
    run = open_run(folder)
    duration = summarize_steps(run.table("steps")).duration_ns
    if duration is None:
        raise SystemExit(f"{case.script} recorded no steps")
    return Recording(duration.mean, diagnose(run, run.ranks[0]))


def record_rounds(case: Case, rounds: int, folder: Path) -> list[Round]:
    return [
        Round(
            record(case, folder / f"{case.script}-{i}", False), record(case, folder / f"{case.script}-{i}-fixed", True)
        )
        for i in range(rounds)
    ]


def is_valid_plant(rounds: Sequence[Round]) -> bool:
    base = [r.base.mean_ns for r in rounds]
    gain = statistics.median(base) - statistics.median(r.fixed.mean_ns for r in rounds)
    return gain >= 0.15 * statistics.median(base) and gain >= 3 * (max(base) - min(base))


def print_case(case: Case, rounds: Sequence[Round]) -> None:
    base, fixed = (statistics.median(getattr(r, arm).mean_ns for r in rounds) / 1e6 for arm in ("base", "fixed"))
    places = [r.rank_of(case.accept) for r in rounds]
    named = [r.base.advice[0].rule if r.base.advice else "–" for r in rounds]
    alarms = sorted({s.rule for r in rounds for s in r.fixed.advice})
    errors = [f"{error:+.0%}" for error in prediction_errors(case, rounds)]
    print(
        f"{case.script:10s} {case.cause or '(healthy)':22s} base {base:7.1f} ms  fixed {fixed:7.1f} ms  "
        f"places {places}  first {named}  errors {errors}  twin {alarms or 'silent'}"
        f"{'' if not case.cause or is_valid_plant(rounds) else '  PLANT NOT VALID'}"
    )


def prediction_errors(case: Case, rounds: Sequence[Round]) -> list[float]:
    """Return (predicted − measured) / measured of each round that predicted."""
    pairs = [(r.prediction(case.accept), r.fixed.mean_ns) for r in rounds]
    return [(s.predicted_step_ns - fixed) / fixed for s, fixed in pairs if s and s.predicted_step_ns is not None]


def covered(case: Case, rounds: Sequence[Round]) -> list[bool]:
    """Return for each round that gave a range whether the measured step lay in it."""
    pairs = [(r.prediction(case.accept), r.fixed.mean_ns) for r in rounds]
    return [
        s.predicted_low_ns <= fixed <= s.predicted_high_ns
        for s, fixed in pairs
        if s and s.predicted_low_ns is not None and s.predicted_high_ns is not None
    ]


def print_totals(results: Sequence[tuple[Case, list[Round]]]) -> None:
    planted = [(case, r) for case, rounds in results if case.cause for r in rounds]
    places = [r.rank_of(case.accept) for case, r in planted]
    silent = [not r.fixed.advice for _, rounds in results for r in rounds]
    silent += [not r.base.advice for case, rounds in results if not case.cause for r in rounds]
    errors = [abs(e) for case, rounds in results for e in prediction_errors(case, rounds)]
    ranges = [inside for case, rounds in results for inside in covered(case, rounds)]
    print(
        f"top-1 {sum(p == 1 for p in places)}/{len(places)}  top-3 {sum(p is not None and p <= 3 for p in places)}/{len(places)}"
    )
    print(f"healthy runs silent {sum(silent)}/{len(silent)}")
    if errors:
        print(
            f"error of the predicted step: mean {statistics.mean(errors):.1%}, median {statistics.median(errors):.1%}, "
            f"within 15 % {sum(e <= 0.15 for e in errors)}/{len(errors)}; "
            f"measured step inside the range {sum(ranges)}/{len(ranges)}"
        )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    wanted = set(sys.argv[2:])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if not wanted or case.script in wanted:
                results.append((case, record_rounds(case, rounds, Path(folder))))
                print_case(*results[-1])
    print_totals(results)


if __name__ == "__main__":
    main()
