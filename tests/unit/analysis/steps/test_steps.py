"""The steps in figures: percentiles, trend, micro-batches, slow steps, and the graph of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.format import parts
from collector.format.parts import build_table_from_rows
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.steps import summarize_phases, summarize_steps
from profiler_server.analysis.steps.outliers import explain_outlier, list_outliers
from profiler_server.analysis.steps.step_figures import (
    count_micro_batches,
    summarize_spread,
    summarize_stability,
    trace_band,
)
from profiler_server.analysis.steps.step_graph import average_graph, trace_step
from tests.support.must import must
from tests.support.runs import MS, RunPlan, build_run, build_steps


def test_means_of_the_phases_sum_to_the_mean_step_and_shares_to_one() -> None:
    steps = build_table_from_rows("steps", build_steps(RunPlan(steps=60)))
    spread = summarize_spread(steps)
    duration = must(summarize_steps(steps).duration_ns)
    assert sum(row.mean_ns for row in spread) == pytest.approx(duration.mean, rel=1e-12)
    assert sum(row.share_frac for row in spread) == pytest.approx(1.0, abs=1e-12)
    assert all(row.p95_ns is not None and row.p50_ns <= row.p95_ns for row in spread)


def test_a_run_that_slows_down_has_a_trend() -> None:
    rows = build_steps(RunPlan(steps=100))
    for row in rows[50:]:
        row["forward_ns"] += 20 * MS
        row["duration_ns"] += 20 * MS
    trend = summarize_stability(build_table_from_rows("steps", rows)).trend_frac
    assert trend == pytest.approx(20 / 64, rel=0.05)


def test_batches_that_come_in_pairs_make_no_trend() -> None:
    rows = build_steps(RunPlan(steps=100))
    for at, row in enumerate(rows):
        is_long = at % 2 == 0 or at == 1  # one more in the first quarter
        row["data_wait_ns"] += 60 * MS * is_long
        row["duration_ns"] += 60 * MS * is_long
    trend = summarize_stability(build_table_from_rows("steps", rows)).trend_frac
    assert trend == pytest.approx(0.0, abs=0.1)


def test_one_step_has_no_jitter() -> None:
    few, one = (summarize_stability(build_table_from_rows("steps", build_steps(RunPlan(steps=n)))) for n in (8, 1))
    assert (few.jitter_frac is not None, one.jitter_frac) == (True, None)


def test_the_band_has_few_points_of_equal_runs() -> None:
    step = np.arange(1, 100_001)
    band = trace_band(step, np.full(100_000, 60 * MS))
    assert len(band.step) <= 60
    assert band.window_steps * len(band.step) <= 100_000
    assert set(band.p50_ns.tolist()) == {60 * MS}


def test_the_band_of_a_short_run_is_flat_and_of_a_very_short_one_empty() -> None:
    band = trace_band(np.arange(1, 22), np.arange(1, 22) * MS)
    assert band.step.tolist() == [1, 21]
    assert band.p50_ns.tolist() == [11 * MS, 11 * MS]
    assert trace_band(np.arange(1, 6), np.array([1, 2, 3, 4, 100]) * MS).window_steps == 0
    assert trace_band(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).window_steps == 0


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


def test_steps_are_laid_out_as_recorded_or_by_phase_or_not_at_all(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run")).rank(0)
    graph = must(trace_step(rank, rank.table("steps"), 5))
    assert graph.measured
    at = 0.0
    for stretch in graph.stretches:
        assert stretch.start_ns == at
        at += stretch.duration_ns
    assert at == graph.duration_ns
    layout.table_file(rank.folder, "phases").unlink()
    graph = must(trace_step(rank, rank.table("steps"), 5))
    assert not graph.measured
    assert sum(s.duration_ns for s in graph.stretches) == graph.duration_ns
    assert trace_step(rank, rank.table("steps"), 41) is None


def test_the_average_is_as_long_as_the_mean_step(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan(steps=60))).rank(0)
    phases = summarize_phases(rank.table("steps"))
    graph = average_graph(phases)
    assert graph.duration_ns == sum(p.mean_ns for p in phases)
    assert [s.phase for s in graph.stretches] == [p.name for p in phases if p.mean_ns]


def _steps_with(step: int, **extra: int) -> list[dict[str, Any]]:
    rows = build_steps(RunPlan(steps=60))
    for name, value in extra.items():
        rows[step - 1][name] += value
    rows[step - 1]["duration_ns"] += sum(
        value for name, value in extra.items() if name not in ("gc_ns", "loader_start_ns")
    )
    return rows


def test_the_phase_that_grew_is_named_with_its_excess() -> None:
    found = list_outliers(build_table_from_rows("steps", _steps_with(30, backward_ns=80 * MS)))
    (slow,) = found.shown
    assert (slow.step, slow.cause, slow.phase) == (30, "phase", "backward")
    assert abs(slow.phase_excess_ns - 80 * MS) < 2 * MS
    assert slow.ratio > 2.0


def test_garbage_collection_and_loader_starts_are_told_from_a_slow_phase() -> None:
    collected = list_outliers(build_table_from_rows("steps", _steps_with(30, backward_ns=80 * MS, gc_ns=75 * MS)))
    started = list_outliers(
        build_table_from_rows("steps", _steps_with(30, data_wait_ns=80 * MS, loader_start_ns=70 * MS))
    )
    assert [o.cause for o in collected.shown] == ["gc"]
    assert [o.cause for o in started.shown] == ["loader_start"]


def test_only_the_slowest_are_shown_but_all_are_counted() -> None:
    rows = build_steps(RunPlan(steps=200))
    for number in range(100, 110):
        rows[number]["tail_ns"] += 10 * number * MS
        rows[number]["duration_ns"] += 10 * number * MS
    found = list_outliers(build_table_from_rows("steps", rows), limit=3)
    assert found.count == 10
    assert [o.step for o in found.shown] == [110, 109, 108]


def test_a_slow_step_of_the_warm_up_says_so_beside_its_cause() -> None:
    rows = _steps_with(1, data_wait_ns=900 * MS, loader_start_ns=880 * MS)
    (slow,) = list_outliers(build_table_from_rows("steps", rows)).shown
    assert (slow.cause, slow.is_warm_up) == ("loader_start", True)
    assert explain_outlier(slow).endswith("starting the loader and its workers (warm-up, not in the figures)")
    (later,) = list_outliers(build_table_from_rows("steps", _steps_with(30, backward_ns=80 * MS))).shown
    assert "warm-up" not in explain_outlier(later)
