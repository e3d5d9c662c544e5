"""Slow steps are found against the usual step, and each says what took the extra time."""

from __future__ import annotations

from typing import Any

from collector.format.parts import build_table_from_rows
from collector.format.steps import select_steps
from profiler_server.analysis.steps.outliers import explain_outlier, list_outliers
from tests.support.runs import MS, RunPlan, build_steps


def _steps_with(step: int, **extra: int) -> list[dict[str, Any]]:
    rows = build_steps(RunPlan(steps=60))
    for name, value in extra.items():
        rows[step - 1][name] += value
    rows[step - 1]["duration_ns"] += sum(
        value for name, value in extra.items() if name not in ("gc_ns", "loader_start_ns")
    )
    return rows


def test_a_steady_run_has_no_outliers() -> None:
    found = list_outliers(build_table_from_rows("steps", build_steps(RunPlan(steps=60))))
    assert (found.count, found.shown) == (0, ())
    assert found.limit_ns is not None


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


def test_a_slow_step_inside_a_window_is_the_windows_doing() -> None:
    found = list_outliers(build_table_from_rows("steps", _steps_with(11, forward_ns=80 * MS)))
    assert [(o.step, o.cause) for o in found.shown] == [(11, "window")]


def test_only_the_slowest_are_shown_but_all_are_counted() -> None:
    rows = build_steps(RunPlan(steps=200))
    for number in range(100, 110):
        rows[number]["tail_ns"] += 10 * number * MS
        rows[number]["duration_ns"] += 10 * number * MS
    found = list_outliers(build_table_from_rows("steps", rows), limit=3)
    assert found.count == 10
    assert [o.step for o in found.shown] == [110, 109, 108]


def test_spikes_stand_out_of_steps_that_spread_widely() -> None:
    rows = build_steps(RunPlan(steps=60))
    for number, row in enumerate(rows[20:], 20):
        extra = 300 * MS if number in (40, 50) else (number * 7 % 20) * 5 * MS
        row["data_wait_ns"] += extra
        row["duration_ns"] += extra
    found = list_outliers(build_table_from_rows("steps", rows))
    assert {outlier.step for outlier in found.shown} == {41, 51}


def test_few_steps_have_no_outliers() -> None:
    found = list_outliers(build_table_from_rows("steps", build_steps(RunPlan(steps=5))))
    assert (found.count, found.limit_ns) == (0, None)


def test_a_slow_step_of_the_warm_up_says_so_beside_its_cause() -> None:
    rows = _steps_with(1, data_wait_ns=900 * MS, loader_start_ns=880 * MS)
    (slow,) = list_outliers(build_table_from_rows("steps", rows)).shown
    assert (slow.cause, slow.is_warm_up) == ("loader_start", True)
    assert explain_outlier(slow).endswith("starting the loader and its workers (warm-up, not in the figures)")
    (later,) = list_outliers(build_table_from_rows("steps", _steps_with(30, backward_ns=80 * MS))).shown
    assert "warm-up" not in explain_outlier(later)


def _find_limit_ms(spread_ms: float) -> float:
    """The limit of steps of 100 ms, some of that length, the others `spread_ms` longer or shorter by turns."""
    rows = build_steps(RunPlan(steps=120))
    for number, row in enumerate(rows):
        row["duration_ns"] = round((100.0 + spread_ms * (0, 1, -1, 1, -1)[number % 5]) * MS)
    limit_ns = list_outliers(build_table_from_rows("steps", rows)).limit_ns
    assert limit_ns is not None
    return limit_ns / MS


def test_steps_that_hardly_spread_are_outliers_from_a_quarter_more() -> None:
    assert abs(_find_limit_ms(spread_ms=1.0) - 125.0) < 0.1


def test_steps_that_spread_are_outliers_from_six_robust_deviations() -> None:
    assert abs(_find_limit_ms(spread_ms=8.0) - (100 + 6 * 1.4826 * 8)) < 0.1


def test_steps_that_spread_widely_are_outliers_from_twice_the_bulk() -> None:
    assert abs(_find_limit_ms(spread_ms=40.0) - 2 * 140.0) < 0.1


def test_fewer_than_ten_steps_have_no_outliers() -> None:
    def count_kept(steps: int) -> int:
        return int(select_steps(build_table_from_rows("steps", build_steps(RunPlan(steps=steps)))).kept.sum())

    fewest = next(steps for steps in range(10, 60) if count_kept(steps) == 10)
    few, enough = (build_table_from_rows("steps", build_steps(RunPlan(steps=steps))) for steps in (fewest - 1, fewest))
    assert list_outliers(few).limit_ns is None
    assert list_outliers(enough).limit_ns is not None
