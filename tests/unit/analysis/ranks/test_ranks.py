"""Ranks side by side: who is behind and why, what is kept, and collectives matched call by call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.analysis.ranks import together
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.collectives import find_slow_call, sum_collectives
from profiler_server.analysis.ranks.matching import match_calls
from profiler_server.analysis.ranks.ranks import RankSummary, summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_ranks, describe_slow_call
from profiler_server.facts.job import NotJudged, Unsure
from profiler_server.facts.ranks import CollectiveRow
from tests.support.jobs import JobPlan, make_job, summarize_job
from tests.support.machines import build_edited, build_ranks
from tests.support.must import must
from tests.support.row_edits import Row, write_rows
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_steps


def make_calls(starts: list[int], durations: list[int], first_step: int = 1, sizes: tuple[int, int] = (0, 0)) -> Calls:
    each = np.ones(len(starts), np.int64)
    steps = np.arange(first_step, first_step + len(starts))
    times = (np.array(starts), np.array(durations), -each)
    sized = (each * (sizes[0] or -1), each * (sizes[1] or -1))
    return Calls((("", "allreduce"),), 0 * each, steps, steps, 0 * each, *times, *sized)


def match_collectives(calls: dict[int, Calls], one_clock: bool = True) -> tuple[CollectiveRow, ...]:
    return sum_collectives(match_calls(calls, one_clock))


def test_collectives_of_a_step_in_which_the_job_stood_still_are_not_summed() -> None:
    calls = {0: make_calls([0, 100], [90, 10]), 1: make_calls([80, 100], [10, 10])}
    rows = sum_collectives(match_calls(calls, True), stood=[1])
    assert [(row.count, row.total_ns, row.wait_ns) for row in rows] == [(1, 10, 0), (1, 10, 0)]
    assert sum_collectives(match_calls(calls, True), stood=[1, 2]) == ()


def test_a_call_that_the_late_rank_did_not_wait_in_is_not_pinned_on_another_rank() -> None:
    waits = {rank: make_calls([0, 100, 200, 300], [90, 90, 90, 90]) for rank in (0, 1)}
    last = make_calls([80, 380], [10, 10])
    last = replace(last, step=np.array([1, 4]), counted_in=np.array([1, 4]))
    rows = match_collectives({**waits, 2: last})
    assert [(row.rank, row.count, row.matched) for row in rows] == [(0, 4, 2), (1, 4, 2), (2, 2, 2)]
    assert [row.late for row in rows] == [0, 0, 2]


def test_a_difference_that_noise_explains_is_not_sure(tmp_path: Path) -> None:
    def edit(rank: int, rows: list[Row]) -> None:
        for row in rows[12 + rank :: 3]:
            row["tail_ns"] += (200, 260)[rank] * 1_000_000

    plan = RunPlan(ranks=2, steps=30, phases_ms={**HEALTHY_STEP_MS, "communication": 4.0})
    judged = judge_ranks(summarize_ranks(open_run(build_edited(tmp_path / "run", plan, edit))))
    assert isinstance(judged, Unsure)
    assert judged.comparison.latest.rank == 1


def test_a_rank_without_steps_says_why_and_the_others_are_compared(tmp_path: Path) -> None:
    run = build_ranks(tmp_path / "run", 3)
    layout.table_file(layout.rank_path(run, 1), "steps").write_bytes(b"PAR1 not a table")
    layout.rank_file(run, 2).write_text("{", encoding="utf-8")
    ranks = summarize_ranks(open_run(run))
    assert [bool(rank.reason) for rank in ranks] == [False, True, True]
    assert "steps.parquet" in ranks[1].reason
    assert judge_ranks(ranks) == NotJudged()


def test_a_summary_is_read_again_when_a_file_changes(tmp_path: Path) -> None:
    path = build_ranks(tmp_path / "run", 2)
    before = summarize_ranks(open_run(path))
    assert summarize_ranks(open_run(path))[0] is before[0]
    write_rows(layout.rank_path(path, 0), "steps", build_steps(RunPlan(steps=30)))
    assert summarize_ranks(open_run(path))[0].steps == 30
    assert summarize_ranks(open_run(path))[1] is before[1]


@pytest.mark.parametrize(
    ("calls", "one_clock", "expected"),
    [
        # What is not the transfer is waiting for the last one.
        ([([0, 100], [50, 60], 1), ([30, 110], [20, 50], 1)], True, [(2, 2, 70, 40, 0), (2, 2, 70, 0, 2)]),
        # One began to record a step later: calls are matched by their step.
        ([([0, 100], [50, 60], 1), ([110], [50], 2)], True, [(2, 1, 50, 10, 0), (1, 1, 50, 0, 1)]),
        ([([0], [50], 1)], True, [(1, 0, None, None, 0)]),
        # On several hosts the shortest call came last.
        ([([1_000_000], [20], 1), ([0], [90], 1)], False, [(1, 1, 20, 0, 1), (1, 1, 20, 70, 0)]),
        # A rank that was cut short takes nothing from the calls after it.
        (
            [([0, 100], [90, 90], 1), ([0, 100], [90, 90], 1), ([80], [10], 1)],
            True,
            [(2, 2, 100, 80, 1), (2, 2, 100, 80, 0), (1, 1, 10, 0, 1)],
        ),
    ],
)
def test_transfers_and_waits_are_those_of_the_calls_that_match(
    calls: list[tuple[list[int], list[int], int]], one_clock: bool, expected: list[tuple[int | None, ...]]
) -> None:
    rows = match_collectives({rank: make_calls(*given) for rank, given in enumerate(calls)}, one_clock)
    assert [(row.count, row.matched, row.transfer_ns, row.wait_ns, row.late) for row in rows] == expected


def test_bus_bandwidth_is_of_all_calls_or_not_known() -> None:
    one = {rank: make_calls([0], [1_000_000], sizes=(1_000_000, 4)) for rank in (0, 1)}
    assert match_collectives(one)[0].bus_bytes_per_s == pytest.approx(1e9 * 2 * 3 / 4)
    calls = {rank: make_calls([0, 10], [5, 5], sizes=(1_000, 4)) for rank in (0, 1)}
    some = {rank: replace(own, group_size=np.array([4, -1])) for rank, own in calls.items()}
    assert match_collectives(calls)[0].bus_bytes_per_s is not None
    assert match_collectives(some)[0].algorithm_bytes_per_s is not None
    assert match_collectives(some)[0].bus_bytes_per_s is None


PLAN = JobPlan(ranks=8, steps=20, calls=5, ranks_per_host=2)


def summarize(plan: JobPlan) -> tuple[RankSummary, ...]:
    return summarize_job(make_job(plan))


@pytest.mark.parametrize("apart_ns", [0.0, 1e13])
def test_a_slow_collective_is_found_beside_a_slow_rank_whatever_the_clocks(apart_ns: float) -> None:
    plan = replace(PLAN, slow_call=2, slow=(5,), slow_frac=0.2, apart_ns=apart_ns, drift=2e-5 if apart_ns else 0.0)
    call = must(find_slow_call(summarize(plan)))
    assert (call.name, call.number, call.count, call.bytes, call.steps) == ("allreduce", 3, 5, 25 << 20, 20)
    assert call.transfer_ns == pytest.approx(20 * MS, rel=0.02)
    assert call.expected_ns == pytest.approx(2 * MS, rel=0.02)


@pytest.mark.parametrize(
    "plan", [PLAN, replace(PLAN, slow=(3,), slow_frac=0.5), replace(PLAN, takes_turns=True, slow_frac=0.5)]
)
def test_waiting_for_a_rank_makes_no_collective_slow(plan: JobPlan) -> None:
    assert find_slow_call(summarize(plan)) is None


def test_a_message_that_is_longer_may_take_longer_in_proportion() -> None:
    found = []
    for factor in (10, 3):
        ranks = []
        for rank in summarize(replace(PLAN, slow_call=2)):
            assert rank.calls is not None
            size = np.where(rank.calls.number == 2, factor, 1) * rank.calls.bytes
            ranks.append(replace(rank, calls=replace(rank.calls, bytes=size)))
        found.append(find_slow_call(ranks))
    assert found[0] is None
    assert found[1] is not None
    assert found[1].expected_ns == pytest.approx(6 * MS, rel=0.02)


def test_a_call_that_was_begun_early_is_not_slow_for_its_time_in_the_queue() -> None:
    """Gradients that are ready while an earlier bucket is sent wait for it; all ranks wait as long."""
    ranks = []
    for rank in summarize(replace(PLAN, transfer_ms=50.0)):
        calls = must(rank.calls)
        early = np.where(
            calls.number == 3, calls.start_ns[np.maximum(np.arange(len(calls.number)) - 3, 0)], calls.start_ns
        )
        ranks.append(replace(rank, calls=replace(calls, start_ns=early, duration_ns=calls.end_ns - early)))
    assert find_slow_call(ranks) is None


def test_one_rank_alone_tells_nothing() -> None:
    assert find_slow_call(summarize(replace(PLAN, slow_call=2))[:1]) is None


def test_the_report_says_which_collective_is_slow() -> None:
    ranks = summarize(replace(PLAN, slow_call=2))
    said = describe_slow_call(find_slow_call(ranks))
    assert said.startswith("allreduce 3 of 5 of group default in a step (25.0 MiB) is slow. ")
    assert said in describe_ranks(ranks, (), judge_ranks(ranks), find_slow_call(ranks))
    assert describe_slow_call(None) == ""


@pytest.mark.parametrize(("most", "every"), [(300, 1), (299, 2), (100, 3)])
def test_a_long_job_is_compared_at_an_even_selection_of_its_steps(
    most: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST_CELLS", most)
    numbers = np.arange(1, 101)
    none = np.zeros(100, np.float32)
    parts = np.zeros((len(PHASE_NAMES), 100), np.float32)
    ranks = {rank: together.RankSteps(numbers, parts, none, none, none) for rank in range(3)}
    assert together.put_together(ranks).step.tolist() == list(range(1, 101, every))
