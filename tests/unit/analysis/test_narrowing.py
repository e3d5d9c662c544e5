"""A rank seen through a range of steps holds what belongs to them, and judges the warm-up as the whole run does."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import RankRun, open_run
from collector.format.schema import layout
from collector.format.steps import select_steps, summarize_steps
from profiler_server.analysis.data.replicas import read_stages
from profiler_server.analysis.narrowing import NarrowedRank, StepRange, find_step_span, parse_range
from tests.support.cases import lay_end_to_end, write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps


def open_rank(path: Path, plan: RunPlan | None = None) -> RankRun:
    return open_run(build_run(path, plan)).rank(0)


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("10-40", StepRange(10, 40)),
        ("7", StepRange(7, 7)),
        (" 3 – 5 ", StepRange(3, 5)),
        ("9-2", StepRange(2, 9)),
        *((bad, None) for bad in ("x", "-4", "5-", "²", "9" * 50, "<script>")),
    ],
)
def test_a_range_is_read_or_refused(text: str, range_: StepRange | None) -> None:
    assert parse_range(text) == range_


def test_every_table_holds_the_rows_of_the_range(tmp_path: Path) -> None:
    rank = NarrowedRank(open_rank(tmp_path / "run"), StepRange(11, 20))
    assert rank.table("steps", ("step",))["step"].to_pylist() == list(range(11, 21))
    assert set(rank.table("operators")["step"].to_pylist()) == {11, 12}
    assert rank.table("queues").num_rows == 10
    begin, end = rank.span_ns
    starts = read_stages(rank, 0)["start_ns"].to_pylist()
    assert starts
    assert all(begin <= start < end for start in starts)
    assert rank.table("tracks").num_rows == 2


def test_a_table_without_a_row_in_the_range_is_empty_and_says_so(tmp_path: Path) -> None:
    rank = NarrowedRank(open_rank(tmp_path / "run"), StepRange(30, 35))
    assert rank.status("operators").state == "empty"
    assert "30-35" in rank.status("operators").reason
    assert rank.status("steps").state == "there"


def test_slow_steps_inside_of_a_run_are_no_warm_up_of_their_range(tmp_path: Path) -> None:
    whole = open_rank(tmp_path / "run", RunPlan(steps=60, operators=False))
    rows = build_steps(RunPlan(steps=60))
    for row in (rows[0], rows[1], rows[29], rows[30]):
        row["forward_ns"] += 300 * MS
        row["duration_ns"] += 300 * MS
        row["detailed"] = False
    lay_end_to_end(rows)
    write_rows(layout.rank_path(tmp_path / "run", 0), "steps", rows)
    assert int(select_steps(whole.table("steps")).warm_up.sum()) == 2
    for range_, warm in ((StepRange(30, 50), 0), (StepRange(2, 40), 1), (StepRange(1, 1), 1)):
        part = NarrowedRank(whole, range_).table("steps")
        assert int(select_steps(part).warm_up.sum()) == warm, range_
    summary = summarize_steps(NarrowedRank(whole, StepRange(30, 31)).table("steps"))
    assert summary.duration_ns is not None
    assert summary.duration_ns.min > 300 * MS


def test_the_span_of_steps_is_that_of_training(tmp_path: Path) -> None:
    assert find_step_span(open_rank(tmp_path / "run")) == StepRange(1, 40)
    assert find_step_span(open_rank(tmp_path / "none", RunPlan(steps=0))) is None
