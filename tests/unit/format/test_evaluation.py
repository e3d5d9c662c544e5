"""Evaluation batches are summed apart, and stand in for steps where nothing was trained."""

from __future__ import annotations

import pytest

from collector.format.parts import build_table_from_rows
from collector.format.steps import has_training, number_batches, summarize_evaluation, summarize_steps
from tests.support.runs import MS, RunPlan, build_steps


def test_a_run_without_evaluation_has_no_summary() -> None:
    assert summarize_evaluation(build_table_from_rows("steps", build_steps(RunPlan()))) is None


def test_evaluation_is_summed_apart_from_training() -> None:
    rows = build_steps(RunPlan(steps=40))
    for row in rows[30:]:
        row.update(kind="eval", step=30)
    steps = build_table_from_rows("steps", rows)
    summary = summarize_evaluation(steps)
    assert summary is not None
    assert summary.count == 10
    assert summary.total_ns == sum(row["duration_ns"] for row in rows[30:])
    assert summarize_steps(steps).count == 30


def test_batches_of_an_inference_run_are_numbered_like_steps() -> None:
    rows = [{**row, "kind": "eval", "step": 0} for row in build_steps(RunPlan(steps=12))]
    steps = build_table_from_rows("steps", rows)
    assert not has_training(steps)
    summary = summarize_steps(number_batches(steps))
    assert (summary.count, summary.first, summary.last) == (12, 1, 12)


def test_the_parts_of_evaluation_sum_to_its_mean_whatever_its_first_batches_took() -> None:
    rows = build_steps(RunPlan(steps=60))
    for row in rows[20:]:
        row.update(kind="eval", step=20)
    for row in rows[20:23]:
        row["data_wait_ns"] += 500 * MS
        row["duration_ns"] += 500 * MS
    summary = summarize_evaluation(build_table_from_rows("steps", rows))
    assert summary is not None
    assert sum(phase.mean_ns for phase in summary.phases) == pytest.approx(summary.duration_ns.mean)
    assert sum(phase.share_frac for phase in summary.phases) == pytest.approx(1.0)
