"""Advice that was taken: which it was, and whether the later run is as it promised."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from profiler_server.analysis.compare.comparison import compare_ranks
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.outcome import find_outcome, judge_outcome
from profiler_server.diagnosis.outcome_sentences import say_outcome
from profiler_server.facts.results import Suggestion
from profiler_server.format import format_duration
from profiler_server.report.outcome import describe_outcome
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.row_edits import Row, evaluate_in_passes, lay_end_to_end, write_rows
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_steps, slow_loader_plan

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
        (60.0, "slower than the range"),
    ],
)
def test_the_measured_step_is_set_beside_the_range_that_was_shown(tmp_path: Path, wait_ms: float, verdict: str) -> None:
    before = build(tmp_path / "before", SLOW)
    told = advice_of(before)["too_few_workers"]
    phases = {**HEALTHY_STEP_MS, "data_wait": wait_ms}
    plan = dataclasses.replace(SLOW, workers=told.settings["num_workers"], phases_ms=phases, queue_depths=(0, 0, 1, 0))
    found = judge_outcome(before, build(tmp_path / "after", plan))
    assert found is not None
    alone = dataclasses.replace(found, taken=found.taken[:1])
    assert verdict in say_outcome(alone)[0]
    assert alone.is_in_range is (verdict == "as predicted")
    assert alone.error_frac == pytest.approx(told.predicted_step_ns / found.step.b_ns - 1)  # type: ignore[operator]


def build_tail(path: Path, tail_ms: float, backward_ms: float = 36.0) -> Run:
    return build(path, plan_of(tail=tail_ms, backward=backward_ms))


def test_a_step_is_judged_by_the_phases_that_the_advice_speaks_of(tmp_path: Path) -> None:
    before = build_tail(tmp_path / "before", 30.0)
    told = advice_of(before)["python_gap"]
    assert told.shortens == ("gap", "tail")
    assert told.predicted_step_ns is not None
    gone_ms = 30.0 - (compare_ranks(before.rank(), before.rank()).step.a_ns - told.predicted_step_ns) / 1e6
    found = judge_outcome(before, build_tail(tmp_path / "after", gone_ms, backward_ms=10.0))
    assert found is not None
    assert [entry.rule for entry in found.taken] == ["python_gap"]
    assert found.is_in_range
    assert found.error_frac == pytest.approx(0.0, abs=0.02)
    said = say_outcome(found)[0]
    assert "as predicted" in said
    assert "Backward is 26.0 ms shorter as well, which this advice does not cover" in said
    found = judge_outcome(before, build_tail(tmp_path / "longer", 1.0, backward_ms=46.0))
    assert found is not None
    assert found.measured_ns == found.step.b_ns
    assert found.is_alone
    assert "Backward is 10.0 ms longer" in say_outcome(found)[0]


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
    slow = advice_of(before)["slow_read"]
    assert (found.taken, found.silent, found.least_step_ns) == ((), (slow.title,), slow.least_step_ns)
    assert f"(at best: {format_duration(slow.least_step_ns)})" in say_outcome(found)[0]
    assert judge_outcome(before, build(tmp_path / "same", SLOW)) is None


def build_evaluated(path: Path, passes: int, steps: int = 100, longer_ms: int = 0) -> Run:
    plan = dataclasses.replace(plan_of(), steps=steps)

    def edit(rows: list[Row]) -> None:
        if passes:
            evaluate_in_passes(rows, passes)
        for row in rows:
            row["backward_ns"] += longer_ms * MS if row["kind"] == "train" else 0

    return build_case_run(path, Plant(plan, edit=edit, manifest=HOST))


def test_less_evaluation_is_set_beside_what_was_promised_of_it(tmp_path: Path) -> None:
    before = build_evaluated(tmp_path / "before", 10)
    assert advice_of(before)["validation_share"].saved_per_step_frac > 0
    # The later steps are longer, which is no matter of the evaluation.
    found = judge_outcome(before, build_evaluated(tmp_path / "after", 2, longer_ms=30))
    assert found is not None
    assert found.judged is None
    assert found.evaluation is not None
    assert found.evaluation.measured_ns == pytest.approx(found.evaluation.predicted_ns, rel=0.01)
    assert found.evaluation.evaluation_ns == pytest.approx(found.evaluation.evaluation_before_ns / 5)
    assert "for training and evaluation together instead of" in say_outcome(found)[0]
    described = describe_outcome(found)
    assert described is not None
    assert described["evaluation"]["title"] == found.evaluation.title


def test_a_run_that_ended_before_it_could_evaluate_has_not_taken_that_advice(tmp_path: Path) -> None:
    before = build_evaluated(tmp_path / "before", 10)
    assert judge_outcome(before, build_evaluated(tmp_path / "same", 10)) is None
    assert judge_outcome(before, build_evaluated(tmp_path / "short", 0, steps=30)) is None


def build_ranks(path: Path, late: str) -> Run:
    """Two ranks, of which the second is behind in a phase, and the first waits for it; none is where that is empty."""
    plan = dataclasses.replace(plan_of(), ranks=2)
    run = build_case_run(path, Plant(plan))
    for rank, phase in enumerate(("communication", late)) if late else ():
        rows = build_steps(plan)
        for row in rows:
            row[f"{phase}_ns"] += 20 * MS
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    return open_run(path)


@pytest.mark.parametrize("late", ["data_wait", "backward"])
def test_a_slow_rank_is_mended_where_the_later_run_names_none(tmp_path: Path, late: str) -> None:
    before = build_ranks(tmp_path / "before", late)
    assert judge_outcome(before, build_ranks(tmp_path / "again", late)) is None
    found = judge_outcome(before, build_ranks(tmp_path / "after", ""))
    assert found is not None
    title = advice_of(before)["slow_rank_loader" if late == "data_wait" else "fixed_straggler"].title
    assert any(title in line for line in say_outcome(found))


def test_several_fixes_at_once_are_not_told_apart(tmp_path: Path) -> None:
    before = build(tmp_path / "before", SLOW)
    workers = advice_of(before)["too_few_workers"].settings["num_workers"]
    found = judge_outcome(before, build_later(tmp_path / "after", workers, wait_ms=0.4, read_ms=20.0))
    assert found is not None
    titles = (found.taken[0].title, *found.beside)
    assert titles == tuple(advice_of(before)[rule].title for rule in ("too_few_workers", "slow_read"))
    assert found.judged is None
    assert f"Taken at once: “{titles[0]}”, “{titles[1]}”. Their gains cannot be told apart" in say_outcome(found)[0]
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
