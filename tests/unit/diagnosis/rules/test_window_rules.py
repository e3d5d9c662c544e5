"""Rules on a replayed window: they speak of their cause, predict the step without it, and are silent without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import Run
from profiler_server.analysis.results import Diagnosis
from profiler_server.diagnosis.judging import diagnose
from tests.support.window_cases import HEALTHY_WINDOWS, WINDOW_CASES
from tests.support.windows import Step, build_window

PREDICTED = [rule for rule, case in WINDOW_CASES.items() if case.mended is not None]


def diagnose_window(path: Path, body: Step) -> tuple[Run, Diagnosis]:
    run = build_window(path, body)
    return run, diagnose(run, 0)


def mean_step_ns(run: Run) -> float:
    return float(run.rank().table("steps").to_pandas()["duration_ns"].iloc[5:-1].mean())


@pytest.mark.parametrize("rule", WINDOW_CASES)
def test_a_rule_speaks_of_its_cause(rule: str, tmp_path: Path) -> None:
    _, diagnosis = diagnose_window(tmp_path, WINDOW_CASES[rule].planted)
    said = {entry.rule: entry for entry in diagnosis.suggestions}
    assert rule in said
    found = said[rule]
    assert all((found.title, found.measured, found.threshold, found.advice, found.change, found.evidence))
    assert found.predicted_low_ns is not None
    assert found.predicted_step_ns is not None
    assert found.predicted_high_ns is not None
    assert 0 < found.predicted_low_ns <= found.predicted_step_ns <= found.predicted_high_ns


@pytest.mark.parametrize("rule", PREDICTED)
def test_the_step_without_the_cause_is_the_one_that_was_predicted(rule: str, tmp_path: Path) -> None:
    case = WINDOW_CASES[rule]
    assert case.mended is not None
    _, diagnosis = diagnose_window(tmp_path / "planted", case.planted)
    mended, _ = diagnose_window(tmp_path / "mended", case.mended)
    found = next(entry for entry in diagnosis.suggestions if entry.rule == rule)
    assert found.predicted_step_ns == pytest.approx(mean_step_ns(mended), rel=0.15)


@pytest.mark.parametrize("rule", PREDICTED)
def test_a_rule_is_silent_where_its_cause_is_gone(rule: str, tmp_path: Path) -> None:
    case = WINDOW_CASES[rule]
    assert case.mended is not None
    _, diagnosis = diagnose_window(tmp_path, case.mended)
    assert rule not in {entry.rule for entry in diagnosis.suggestions}


@pytest.mark.parametrize("name", HEALTHY_WINDOWS)
def test_a_healthy_window_gets_no_advice(name: str, tmp_path: Path) -> None:
    _, diagnosis = diagnose_window(tmp_path, HEALTHY_WINDOWS[name])
    assert [entry.rule for entry in diagnosis.suggestions] == []
