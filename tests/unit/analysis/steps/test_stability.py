"""Percentiles of phases, jitter, trend, and the band along the run."""

from __future__ import annotations

import numpy as np
import pytest

from collector.format.parts import build_table_from_rows
from collector.format.steps import summarize_steps
from profiler_server.analysis.steps.step_figures import summarize_spread, summarize_stability, trace_band
from tests.support.runs import MS, RunPlan, build_steps


def test_means_of_the_phases_sum_to_the_mean_step_and_shares_to_one() -> None:
    steps = build_table_from_rows("steps", build_steps(RunPlan(steps=60)))
    spread = summarize_spread(steps)
    duration = summarize_steps(steps).duration_ns
    assert duration is not None
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


def test_too_few_steps_have_no_trend_and_one_step_no_jitter() -> None:
    few = summarize_stability(build_table_from_rows("steps", build_steps(RunPlan(steps=8))))
    one = summarize_stability(build_table_from_rows("steps", build_steps(RunPlan(steps=1))))
    assert (few.trend_frac, one.jitter_frac) == (None, None)
    assert few.jitter_frac is not None


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
