"""Which steps an average covers, and what it says of them."""

from __future__ import annotations

import numpy as np
import pytest

from collector.format.parts import build_table_from_rows
from collector.format.steps import select_steps, summarize_durations, summarize_phases, summarize_steps
from tests.support.row_edits import begin_epochs, lay_end_to_end
from tests.support.runs import MS, RunPlan, build_steps


def test_windows_are_left_out_and_named() -> None:
    summary = summarize_steps(build_table_from_rows("steps", build_steps(RunPlan(steps=40))))
    assert (summary.count, summary.first, summary.last, summary.excluded) == (40, 1, 40, (10, 11, 12))


def test_slow_steps_at_the_start_are_warm_up() -> None:
    rows = build_steps(RunPlan(steps=60))
    for row in (rows[0], rows[1], rows[3]):
        row["forward_ns"] += 500 * MS
        row["duration_ns"] += 500 * MS
    assert summarize_steps(build_table_from_rows("steps", rows)).excluded == (1, 2, 3, 4, 10, 11, 12)


def test_steps_that_are_short_and_long_by_turns_are_no_warm_up() -> None:
    rows = build_steps(RunPlan(steps=60))
    for row in rows[::2]:
        row["data_wait_ns"] += 100 * MS
        row["duration_ns"] += 100 * MS
    assert not select_steps(build_table_from_rows("steps", rows)).warm_up.any()


def test_a_trace_whose_steps_are_all_detailed_is_averaged_whole() -> None:
    rows = [{**row, "detailed": True} for row in build_steps(RunPlan(steps=6))]
    assert summarize_steps(build_table_from_rows("steps", rows)).excluded == ()


def test_first_steps_of_an_epoch_count_in_the_mean_but_are_not_regular() -> None:
    rows = build_steps(RunPlan(steps=60))
    begin_epochs(20, wait_ms=300.0)(rows)
    lay_end_to_end(rows)
    selection = select_steps(build_table_from_rows("steps", rows))
    assert selection.step[selection.first_of_epoch].tolist() == [1, 21, 41]
    assert selection.kept[[20, 40]].all()
    assert not selection.regular[[20, 40]].any()


def test_phases_sum_to_the_mean_step_and_shares_to_one() -> None:
    table = build_table_from_rows("steps", build_steps(RunPlan(steps=47)))
    phases, summary = summarize_phases(table), summarize_steps(table)
    assert summary.duration_ns is not None
    assert sum(phase.mean_ns for phase in phases) == pytest.approx(summary.duration_ns.mean, rel=1e-12)
    assert sum(phase.share_frac for phase in phases) == pytest.approx(1.0, abs=1e-12)


def test_percentiles_interpolate_between_closest_ranks() -> None:
    spread = summarize_durations(np.arange(10, 210, 10, dtype=np.int64))
    assert spread is not None
    assert (spread.min, spread.p50, spread.p90, spread.max) == pytest.approx((10, 105.0, 181.0, 200))


def test_figures_of_known_times() -> None:
    found = summarize_durations(np.arange(1, 1002, dtype=np.int64))
    assert found is not None
    assert (found.count, found.min, found.max, found.mean) == (1001, 1, 1001, 501)
    expected = {"p50": 501, "p90": 901, "p95": 951, "p97": 971, "p99": 991, "p99.9": 1000}
    assert dict(found.list_percentiles()) == pytest.approx(expected)


def test_no_steps_give_no_distribution() -> None:
    table = build_table_from_rows("steps", [])
    assert summarize_steps(table).duration_ns is None
    assert summarize_phases(table) == ()
