"""Which steps an average covers, at each limit that decides it, and the figures that are made of them; evaluation apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collector.format.parts import build_table_from_rows
from collector.format.steps import (
    LeftOut,
    explain_left_out,
    find_stall_limit,
    has_training,
    mark_judged,
    mark_reading,
    mark_stood,
    number_batches,
    select_steps,
    share_phases,
    summarize_durations,
    summarize_evaluation,
    summarize_phases,
    summarize_steps,
)
from profiler_server.analysis.steps.step_figures import measure_throughput
from tests.support.row_edits import begin_epochs, lay_end_to_end
from tests.support.runs import MS, RunPlan, build_steps


def build(lengths_ms: list[float], **columns: list[Any]) -> Any:
    """Build steps of these lengths, without a detailed window; a column is given by its values."""
    rows = build_steps(RunPlan(steps=len(lengths_ms)))
    for number, row in enumerate(rows):
        row |= {
            "duration_ns": round(lengths_ms[number] * MS),
            "detailed": False,
            "batch": number + 1,
            "loader_start_ns": 0,
        }
        row |= {name: values[number] for name, values in columns.items()}
    return build_table_from_rows("steps", rows)


def count_warm_up(lengths_ms: list[float]) -> int:
    return int(select_steps(build(lengths_ms)).warm_up.sum())


def test_ten_steps_can_have_a_warm_up_and_nine_cannot() -> None:
    assert count_warm_up([500.0] + [100.0] * 9) == 1
    assert count_warm_up([500.0] + [100.0] * 8) == 0


@pytest.mark.parametrize(("first_ms", "expected"), [(125.0, 0), (126.0, 1), (99.0, 0), (80.0, 0)])
def test_a_warm_up_is_a_quarter_longer_than_the_median(first_ms: float, expected: int) -> None:
    assert count_warm_up([first_ms] + [100.0] * 29) == expected


def test_a_warm_up_is_longer_than_all_but_a_twentieth_of_the_later_steps() -> None:
    later = [100.0] * 20 + [300.0] * 2 + [100.0] * 7
    assert count_warm_up([200.0, *later]) == 0  # a tenth of the later ones is longer
    assert count_warm_up([200.0] + [100.0] * 39 + [300.0]) == 1


def test_a_warm_up_lasts_while_one_of_the_next_two_steps_is_slow_too() -> None:
    assert count_warm_up([500.0, 100.0, 100.0, 100.0, 500.0] + [100.0] * 35) == 1
    assert count_warm_up([500.0, 100.0, 100.0, 500.0] + [100.0] * 36) == 4
    assert count_warm_up([500.0, 100.0, 500.0] + [100.0] * 37) == 3
    assert count_warm_up([100.0, 100.0, 500.0] + [100.0] * 37) == 3
    assert count_warm_up([100.0, 100.0, 100.0, 500.0] + [100.0] * 36) == 0


def test_a_warm_up_is_a_fifth_of_the_steps_at_most_and_200() -> None:
    assert count_warm_up([500.0] * 6 + [100.0] * 14) == 4
    assert count_warm_up([500.0] * 300 + [100.0] * 1200) == 200


def test_what_a_whole_run_judged_holds_for_a_part_of_it() -> None:
    part = mark_judged(build([100.0] * 5), 2)
    assert select_steps(part).warm_up.tolist() == [True, True, False, False, False]


def test_detailed_steps_are_kept_where_nearly_nothing_else_is_there() -> None:
    mostly, partly = ([number < detailed for number in range(20)] for detailed in (15, 10))
    assert select_steps(build([100.0] * 20, detailed=mostly)).kept.all()
    assert select_steps(build([100.0] * 20, detailed=partly)).kept.sum() == 10
    assert select_steps(build([100.0] * 12, detailed=[True] * 3 + [False] * 9)).kept.sum() == 9


def test_steps_beside_the_reading_of_a_window_are_left_out_if_ten_others_stay() -> None:
    """The span touches steps 3 to 5: the end of step 3, and the start of step 5."""
    starts = [number * 100 * MS for number in range(13)]
    span = (starts[3] - 1, starts[4] + 1)
    long, short = (mark_reading(build([100.0] * count, start_ns=starts[:count]), [span]) for count in (13, 12))
    found = select_steps(long)
    assert found.step[found.detailed].tolist() == [3, 4, 5]
    assert [(group.reason, group.steps.tolist()) for group in found.left_out] == [("detailed windows", [3, 4, 5])]
    assert select_steps(short).kept.all()


def test_a_choice_of_standstills_alone_is_averaged() -> None:
    whole, part = (mark_stood(build([100.0] * count), {1: 1, 2: 1}) for count in (12, 2))
    assert select_steps(whole).kept.sum() == 10
    assert select_steps(part).kept.all()


def test_the_first_step_of_an_epoch_is_that_of_the_first_batch_or_of_a_loader_that_starts() -> None:
    table = build([100.0] * 6, batch=[0, 1, None, 3, 4, 5], loader_start_ns=[0, 0, 0, 1, 0, 0])
    assert select_steps(table).first_of_epoch.tolist() == [True, False, False, True, False, False]


def test_where_most_steps_begin_an_epoch_all_are_regular() -> None:
    often, seldom = ([number % every for number in range(12)] for every in (1, 2))
    assert select_steps(build([100.0] * 12, batch=often)).regular.all()
    assert select_steps(build([100.0] * 12, batch=seldom)).regular.sum() == 6


def test_why_steps_are_left_out_is_told_once() -> None:
    groups = [
        LeftOut("warm-up", np.array([1])),
        LeftOut("detailed windows", np.array([3, 4])),
        LeftOut("warm-up", np.array([1])),
    ]
    assert explain_left_out(groups) == "4 steps left out: warm-up, detailed windows"
    assert explain_left_out(groups[:1]) == "1 step left out: warm-up"
    assert explain_left_out([]) == ""


def test_the_summary_numbers_all_steps_and_averages_the_kept_ones() -> None:
    assert summarize_steps(build([])).duration_ns is None
    summary = summarize_steps(build([500.0] + [100.0] * 19))
    assert (summary.count, summary.first, summary.last, summary.excluded) == (20, 1, 20, (1,))
    assert summary.duration_ns is not None
    assert (summary.duration_ns.count, summary.duration_ns.mean, summary.duration_ns.std) == (19, 100 * MS, 0)


def test_a_distribution_is_numpys() -> None:
    values = np.arange(1, 2001, dtype=np.int64) ** 2
    spread = summarize_durations(values)
    assert spread is not None
    assert (spread.count, spread.min, spread.max) == (2000, 1, 4_000_000)
    assert (spread.mean, spread.std) == (values.mean(), values.std())
    labels = {"p50": 50, "p90": 90, "p95": 95, "p97": 97, "p99": 99, "p99.9": 99.9}
    assert dict(spread.list_percentiles()) == {name: np.percentile(values, share) for name, share in labels.items()}
    assert summarize_durations(values[:0]) is None


@pytest.mark.parametrize(("count", "ranked"), [(1, False), (19, False), (20, True)])
def test_few_times_have_a_median_and_no_percentiles_above_it(count: int, ranked: bool) -> None:
    spread = summarize_durations(np.arange(1, count + 1, dtype=np.int64))
    assert spread is not None
    assert spread.p50 == (count + 1) / 2
    assert {value is not None for _, value in spread.list_percentiles()[1:]} == {ranked}
    assert (spread.explain_unranked() == "") == ranked


def test_phases_of_no_time_have_no_share() -> None:
    rows = build_steps(RunPlan(steps=2))
    for row in rows:
        row |= {name: 0 for name in row if name.endswith("_ns") and name not in ("start_ns", "duration_ns")}
    assert {phase.share_frac for phase in share_phases(build_table_from_rows("steps", rows))} == {0.0}
    assert share_phases(build_table_from_rows("steps", rows[:0])) == ()


@pytest.mark.parametrize(("spread", "expected"), [(1.0, 150.0), (20.0, 100 + 8 * 1.4826 * 20)])
def test_a_step_is_stalled_from_half_the_median_more_and_eight_robust_deviations(
    spread: float, expected: float
) -> None:
    durations = np.array([100.0, 100.0 + spread, 100.0 - spread, 100.0 + spread, 100.0 - spread])
    assert find_stall_limit(durations) == pytest.approx(expected)


def test_throughput_is_that_of_the_steps_that_the_average_covers() -> None:
    table = build([1000.0] + [100.0] * 19, samples=[1000] + [16] * 19)
    assert measure_throughput(table) == pytest.approx(160.0)
    assert measure_throughput(build([100.0] * 12, samples=[None] * 12)) is None


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
