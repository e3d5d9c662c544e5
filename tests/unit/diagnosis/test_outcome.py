"""Advice that was taken: which it was, and whether the later run is as it promised."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from profiler_server.analysis.results import Suggestion
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.outcome import describe_outcome, find_outcome, judge_outcome, say_outcome
from tests.support.cases import Plant, build_case_run
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, slow_loader_plan

HOST = {"usable_cores": 8.0, "cpu_count": 8}
SLOW = dataclasses.replace(slow_loader_plan("read"), steps=100)


def build(path: Path, plan: RunPlan, **manifest: Any) -> Run:
    return build_case_run(path, Plant(plan, manifest={**HOST, **manifest}))


def build_later(path: Path, workers: int, wait_ms: float, read_ms: float = 300.0, **manifest: Any) -> Run:
    phases = {**HEALTHY_STEP_MS, "data_wait": wait_ms}
    plan = dataclasses.replace(SLOW, workers=workers, phases_ms=phases, read_ms=read_ms)
    return build(path, plan, **manifest)


def advice_of(run: Run) -> Mapping[str, Suggestion]:
    return {entry.rule: entry for entry in diagnose(run, 0).suggestions}


def test_workers_as_advised_are_advice_that_was_taken(tmp_path: Path) -> None:
    before = build(tmp_path / "before", SLOW)
    told = advice_of(before)["too_few_workers"]
    after = build_later(tmp_path / "after", told.settings["num_workers"], wait_ms=0.4)
    found = judge_outcome(before, after)
    assert found is not None
    assert [entry.rule for entry in found.taken][:1] == ["too_few_workers"]
    assert found.step.b_ns == pytest.approx(64e6, rel=0.01)
    assert found.step.a_ns == pytest.approx(159.6e6, rel=0.01)


@pytest.mark.parametrize(
    ("wait_ms", "verdict"),
    [
        (1.0, "as predicted"),
        (14.0, "inside the range"),
        (60.0, "slower than the range"),
        (-30.0, "faster than the range"),
    ],
)
def test_the_measured_step_is_set_beside_the_range_that_was_shown(tmp_path: Path, wait_ms: float, verdict: str) -> None:
    before = build(tmp_path / "before", SLOW)
    told = advice_of(before)["too_few_workers"]
    phases = {**HEALTHY_STEP_MS, "data_wait": max(wait_ms, 0.4), "backward": 36.0 + min(wait_ms, 0.0)}
    plan = dataclasses.replace(SLOW, workers=told.settings["num_workers"], phases_ms=phases, queue_depths=(0, 0, 1, 0))
    found = judge_outcome(before, build(tmp_path / "after", plan))
    assert found is not None
    alone = dataclasses.replace(found, taken=found.taken[:1])
    assert verdict in say_outcome(alone)[0]
    assert alone.is_in_range is (verdict in ("as predicted", "inside the range"))
    assert alone.error_frac == pytest.approx(told.predicted_step_ns / found.step.b_ns - 1)  # type: ignore[operator]


def test_another_number_of_workers_than_advised_is_not_the_advice(tmp_path: Path) -> None:
    before = build(tmp_path / "before", SLOW)
    after = build_later(tmp_path / "after", 3, wait_ms=50.0)
    found = judge_outcome(before, after)
    assert found is None or "too_few_workers" not in [entry.rule for entry in found.taken]


def test_code_counts_as_changed_where_its_rule_is_silent_and_the_step_is_clearly_faster(tmp_path: Path) -> None:
    before = build(tmp_path / "before", SLOW)
    assert "slow_read" in advice_of(before)
    found = judge_outcome(before, build_later(tmp_path / "after", 2, wait_ms=0.4, read_ms=20.0))
    assert found is not None
    assert [entry.rule for entry in found.taken] == ["slow_read"]
    assert judge_outcome(before, build(tmp_path / "same", SLOW)) is None


def test_several_fixes_at_once_are_not_told_apart(tmp_path: Path) -> None:
    before = build(tmp_path / "before", SLOW)
    workers = advice_of(before)["too_few_workers"].settings["num_workers"]
    found = judge_outcome(before, build_later(tmp_path / "after", workers, wait_ms=0.4, read_ms=20.0))
    assert found is not None
    assert len(found.taken) == 2
    assert found.judged is None
    assert "cannot be told apart" in say_outcome(found)[0]
    described = describe_outcome(found)
    assert described is not None
    assert described["is_in_range"] is None


def test_runs_of_different_models_have_no_outcome(tmp_path: Path) -> None:
    def model(parameters: int) -> Mapping[str, Any]:
        return {"optimizers": [{"name": "SGD", "parameters": parameters}]}

    before = build(tmp_path / "before", SLOW, facts=model(10))
    after = build_later(tmp_path / "after", 2, wait_ms=0.4, read_ms=20.0, facts=model(20))
    assert judge_outcome(before, after) is None


def test_a_damaged_run_has_no_outcome(tmp_path: Path) -> None:
    before, after = build(tmp_path / "before", SLOW), build(tmp_path / "after", SLOW)
    (after.rank().folder / "steps.parquet").write_bytes(b"no table")
    assert find_outcome(before, after) is None
    assert describe_outcome(None) is None
