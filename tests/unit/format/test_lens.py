"""A rank seen through a range of steps holds what belongs to them, and judges the warm-up as the whole run does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

from collector.format.lens import StepRange, parse_range
from collector.format.run import RankRun, open_run
from collector.format.schema import layout
from collector.format.steps import select_steps, summarize_steps
from collector.traces.importing import import_trace
from profiler_server.analysis.accounting.categories import summarize_categories
from profiler_server.analysis.data.replicas import read_stages
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.operators.operators import summarize_kernels, summarize_operators
from profiler_server.analysis.ranks.ranks import summarize_rank
from profiler_server.analysis.steps.step_figures import StepSpan, find_step_span
from profiler_server.derive import derived, records
from profiler_server.store.redaction import redact
from tests.support.live import edit_rank
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.traces import call, kernel, operator, step, write_trace


def open_rank(path: Path, plan: RunPlan | None = None) -> RankRun:
    return open_run(build_run(path, plan)).rank(0)


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("10-40", StepRange(10, 40)),
        ("7", StepRange(7, 7)),
        (" 3 – 5 ", StepRange(3, 5)),
        ("9-2", StepRange(2, 9)),
        ("9" * 15, StepRange(10**15 - 1, 10**15 - 1)),
        ("9" * 16, None),
        *((bad, None) for bad in ("x", "-4", "5-", "²", "9" * 50, "<script>")),
    ],
)
def test_a_range_is_read_or_refused(text: str, range_: StepRange | None) -> None:
    assert parse_range(text) == range_


def test_every_table_holds_the_rows_of_the_range(tmp_path: Path) -> None:
    rank = open_rank(tmp_path / "run").through(StepRange(11, 20))
    assert rank.table("steps", ("step",))["step"].to_pylist() == list(range(11, 21))
    assert set(rank.table("operators")["step"].to_pylist()) == {11, 12}
    assert rank.table("queues").num_rows == 10
    begin, end = rank.span_ns
    starts = read_stages(rank, 0)["start_ns"].to_pylist()
    assert starts
    assert all(begin <= start < end for start in starts)
    assert rank.table("tracks").num_rows == 2


def test_rows_are_asked_for_within_the_range_only(tmp_path: Path) -> None:
    rank = open_rank(tmp_path / "run").through(StepRange(11, 20))
    assert set(rank.table("operators", ("step",), pc.field("step") >= 12)["step"].to_pylist()) == {12}


def test_a_range_without_a_step_spans_no_time(tmp_path: Path) -> None:
    assert open_rank(tmp_path / "run").through(StepRange(90, 99)).span_ns == (0, 0)


def test_a_table_without_a_row_in_the_range_is_empty_and_says_so(tmp_path: Path) -> None:
    rank = open_rank(tmp_path / "run").through(StepRange(30, 35))
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
        part = whole.through(range_).table("steps")
        assert int(select_steps(part).warm_up.sum()) == warm, range_
    summary = summarize_steps(whole.through(StepRange(30, 31)).table("steps"))
    assert summary.duration_ns is not None
    assert summary.duration_ns.min > 300 * MS


def test_the_span_of_steps_is_that_of_training(tmp_path: Path) -> None:
    assert find_step_span(open_rank(tmp_path / "run")) == StepSpan(1, 40)
    assert find_step_span(open_rank(tmp_path / "none", RunPlan(steps=0))) is None


def build_device_run(path: Path) -> RankRun:
    """Import a trace of four steps with one kernel each, of 1, 2, 3 and 4 ms, that an operator of the user's launched."""
    events = []
    for number in range(4):
        at = 10_000 * number
        events += [step(number + 1, at, 10_000), operator("acme::secret", at, 200), call(at + 10, 5, number + 1)]
        events += [kernel("secret_kernel", at + 100, 1_000 * (number + 1), number + 1)]
    return import_trace(write_trace(path / "t.json", events), path / "run").rank()


def compute_device(rank: RankRun) -> float:
    found = summarize_device(rank)
    return 0 if found is None else found.computation_ns


def compute_kernels_per_step(rank: RankRun) -> float:
    return (summarize_categories(rank) or {})["kernel"]


@pytest.mark.parametrize(
    ("summarize", "of_part", "of_whole"),
    [
        (compute_device, 3 * MS, 10 * MS),
        (compute_kernels_per_step, 1.5 * MS, 2.5 * MS),
        (lambda rank: summarize_rank(rank).steps, 2, 4),
        (lambda rank: sum(row.total_ns for row in summarize_kernels(rank)), 3 * MS, 10 * MS),
        (lambda rank: sum(row.count for row in summarize_operators(rank)), 2, 4),
    ],
)
def test_a_figure_read_through_a_filter_is_not_taken_for_that_of_the_whole_rank(
    tmp_path: Path, summarize: Callable[[RankRun], float], of_part: float, of_whole: float
) -> None:
    rank = build_device_run(tmp_path)
    part = rank.through(StepRange(1, 2))
    assert [summarize(part), summarize(rank), summarize(part)] == [of_part, of_whole, of_part]


def test_names_left_out_for_one_reader_are_there_for_the_next(tmp_path: Path) -> None:
    rank = build_device_run(tmp_path)
    run = open_run(rank.run_path)
    for _ in range(2):
        hidden = {row.name for row in summarize_operators(redact(run).rank(0))}
        assert "operator 1" in hidden
        assert not any("secret" in name for name in hidden)
        assert "acme::secret" in {row.name for row in summarize_operators(run.rank(0))}


def test_a_filter_of_a_redacted_rank_keeps_both(tmp_path: Path) -> None:
    path = build_device_run(tmp_path).run_path
    edit_rank(path, host="my-host")
    run = redact(open_run(path))
    part = run.rank(0).through(StepRange(2, 3))
    assert part.table("steps")["step"].to_pylist() == [2, 3]
    assert set(part.table("operators")["name"].to_pylist()) == {"operator 1"}
    assert part.manifest.host == "host 1"


def test_every_way_to_see_a_rank_has_a_key_of_its_own(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run"))
    rank, redacted = run.rank(0), redact(run)
    part = rank.through(StepRange(1, 2))
    seen = [rank, part, rank.through(StepRange(2, 3)), redacted.rank(0), redact(run).rank(0)]
    assert len({each.key for each in seen}) == len(seen)
    assert rank.key == run.rank(0).key
    assert part.key == rank.through(StepRange(1, 2)).key
    assert redacted.rank(0).key == redacted.rank(0).key
    assert part.whole.key == rank.key


def test_the_figures_of_a_filter_are_never_stored_beside_the_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "AT_ONCE_SLICES", 1)
    rank = build_device_run(tmp_path)
    summarize_device(rank.through(StepRange(1, 2)))
    assert not (rank.folder / records.FOLDER).exists()
    whole = summarize_device(rank)
    part = summarize_device(rank.through(StepRange(2, 3)))
    assert whole is not None
    assert part is not None
    assert (rank.folder / records.FOLDER).exists()
    assert (whole.computation_ns, part.computation_ns) == (10 * MS, 5 * MS)
