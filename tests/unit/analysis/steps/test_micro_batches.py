"""Gradient accumulation is told from several models, several updates and closures."""

from __future__ import annotations

import pytest

from collector.format import parts
from profiler_server.analysis.steps.step_figures import count_micro_batches, summarize_spread
from tests.support.runs import MS, RunPlan, build_steps


@pytest.mark.parametrize(
    ("counts", "micro_batches"),
    [
        ({}, 1),
        ({"fetches": 4, "forwards": 4, "backwards": 4}, 4),
        ({"fetches": 1, "backwards": 2, "optimizer_steps": 2}, 1),  # two models on one batch
        ({"fetches": 1, "forwards": 20, "backwards": 20}, 1),  # a closure that is called again and again
        ({"fetches": 2, "backwards": 2, "optimizer_steps": 2}, 1),  # two loops side by side
    ],
)
def test_a_step_accumulates_when_each_backward_had_its_batch(counts: dict[str, int], micro_batches: int) -> None:
    rows = [row | counts for row in build_steps(RunPlan(steps=20))]
    assert count_micro_batches(parts.build_table_from_rows("steps", rows)) == micro_batches


def test_a_run_without_steps_has_no_micro_batches() -> None:
    assert count_micro_batches(parts.build_table_from_rows("steps", [])) == 1


def test_a_phase_is_carried_by_the_step_that_has_most_of_it() -> None:
    rows = build_steps(RunPlan(steps=30))
    rows[16]["tail_ns"] += 900 * MS
    rows[16]["duration_ns"] += 900 * MS
    spread = {row.name: row for row in summarize_spread(parts.build_table_from_rows("steps", rows))}
    assert spread["tail"].carrier == 17
    assert spread["forward"].carrier is None
    assert spread["communication"].carrier is None
