"""Lateness without a common clock: who came last, how well that is known, and clocks that are hours apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.collectives import sum_collectives, summarize_collectives
from profiler_server.analysis.ranks.lateness import Lateness, measure_calls
from profiler_server.analysis.ranks.matching import match_calls
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_evidence, describe_straggler
from profiler_server.facts.job import Apart, Slow, Strangers
from tests.support.jobs import STEP_NS, Job, JobPlan, make_calls, make_job, summarize_job, take
from tests.support.must import must
from tests.support.runs import MS

HOUR_NS = 3_600_000_000_000
SLOW = JobPlan(ranks=8, steps=40, calls=2, slow=(5,), slow_frac=0.2, ranks_per_host=2)


def measure(job: Job, one_clock: bool = False) -> Lateness:
    return must(measure_calls(match_calls({rank: make_calls(job, rank) for rank in range(job.plan.ranks)}, one_clock)))


@pytest.mark.parametrize(("apart_ns", "drift"), [(0.0, 0.0), (7 * HOUR_NS, 0.0), (HOUR_NS, 5e-5)])
def test_clocks_change_nothing_about_who_is_late_and_by_how_much(apart_ns: float, drift: float) -> None:
    found = measure(make_job(replace(SLOW, apart_ns=apart_ns, drift=drift)))
    assert set(found.last.tolist()) == {5}
    _, late = found.sum_by_step()
    assert late[5].mean() == pytest.approx(0.2 * STEP_NS, rel=0.05)
    assert np.abs(late[[0, 1, 2, 3, 4, 6, 7]]).mean() < 0.01 * STEP_NS


def test_the_residual_is_what_the_ranks_leave_apart() -> None:
    half, most = measure(make_job(SLOW)).residual_ns
    assert 0 < half < most < 10_000


@pytest.mark.parametrize(("apart_ns", "drift"), [(0.0, 0.0), (7 * HOUR_NS, 0.0), (HOUR_NS, 5e-5)])
def test_transfer_and_wait_are_those_of_aligned_clocks(apart_ns: float, drift: float) -> None:
    job = make_job(replace(SLOW, apart_ns=apart_ns, drift=drift))
    matched = match_calls({rank: make_calls(job, rank) for rank in range(8)}, one_clock=False)
    rows = {row.rank: row for row in sum_collectives(matched)}
    assert matched.clock == "aligned"
    assert matched.clock_residual_ns < 10_000
    for row in rows.values():
        assert row.transfer_ns == pytest.approx(80 * 2 * MS, rel=0.02)
    assert rows[0].wait_ns == pytest.approx(40 * 0.2 * STEP_NS, rel=0.1)
    assert rows[5].wait_ns == pytest.approx(0, abs=80 * 0.1 * MS)
    assert (rows[5].late, rows[0].late) == (80, 0)


def test_one_host_whose_clocks_are_said_to_be_one_but_are_not_is_aligned() -> None:
    job = make_job(replace(SLOW, apart_ns=HOUR_NS))
    matched = match_calls({rank: make_calls(job, rank) for rank in range(8)}, one_clock=True)
    assert matched.clock == "aligned"


def test_ranks_of_another_job_in_the_same_folder_are_told_apart_and_nobody_is_blamed() -> None:
    """Ranks that meet need as long from one meeting to another, whatever their clocks say."""
    plan = replace(SLOW, ranks=4, slow=(), ranks_per_host=4)
    ours = summarize_job(make_job(plan))
    others = summarize_job(make_job(replace(plan, transfer_ms=20.0, slow=(3,), seed=1)))
    ranks = [*ours[:2], *others[2:]]
    judged = judge_ranks(ranks)
    assert isinstance(judged, Apart)
    assert set(judged.lasted_ns) == {0, 1, 2, 3}
    assert describe_straggler(judged).startswith("Not judged: the clocks of these ranks do not fit together.")
    assert describe_evidence(judged) == ""
    assert all((row.matched, row.wait_ns, row.transfer_ns) == (0, None, None) for row in summarize_collectives(ranks))
    assert judge_ranks(ours).comparison is not None


def test_calls_of_other_collectives_by_the_same_name_align_no_clocks() -> None:
    calls = {rank: make_calls(make_job(replace(SLOW, seed=rank, noise_frac=0.3)), rank) for rank in range(4)}
    assert match_calls(calls, one_clock=False).clock == "unknown"


def test_a_rank_that_was_cut_short_is_left_out_and_the_others_are_judged() -> None:
    job = make_job(SLOW)
    ranks = list(summarize_job(job))
    short = ranks[3]
    calls, steps = make_calls(job, 3), short.together
    cut = {name: getattr(steps, name)[..., :5] for name in ("step", "parts_ns", "collecting_ns", "meeting_ns")}
    steps = replace(steps, **cut)
    ranks[3] = replace(short, calls=take(calls, slice(10)), together=steps)
    judged = judge_ranks(ranks)
    assert isinstance(judged, Slow)
    assert (judged.culprits, judged.comparison.left_out, judged.comparison.others) == ((5,), (3,), 6)


@pytest.mark.parametrize("every", [3, 9])
def test_a_slow_rank_whose_calls_are_listed_now_and_then_is_found_all_the_same(every: int) -> None:
    """DDP tells of some of its reductions, of a rank that is late of fewer."""
    job = make_job(replace(SLOW, ranks=4, calls=1, steps=60, slow=(2,), slow_frac=2.0, ranks_per_host=4))
    ranks = list(summarize_job(job))
    calls = make_calls(job, 2)
    ranks[2] = replace(ranks[2], calls=take(calls, calls.step % every == 0))
    judged = judge_ranks(ranks)
    assert isinstance(judged, Slow)
    assert (judged.culprits, judged.comparison.left_out, judged.comparison.others) == ((2,), (), 3)


def test_steps_are_measured_from_where_the_ranks_left_their_last_collective_together() -> None:
    """What a rank does after that varies: it makes steps unlike, and the rank late in the next one."""
    job = make_job(replace(SLOW, ranks=4, slow=(1,), calls=1, noise_frac=0.2, ranks_per_host=4))
    ranks = [replace(rank, calls=None) for rank in summarize_job(job)]
    by_steps = judge_ranks(ranks)
    left = job.end_ns[:, :, -1]
    meeting = np.diff(left, axis=1, prepend=np.nan).astype(np.float32)
    known = [
        replace(rank, together=replace(rank.together, meeting_ns=meeting[rank.rank])) for rank in summarize_job(job)
    ]
    judged = judge_ranks([replace(rank, calls=None) for rank in known])
    assert isinstance(judged, Slow)
    assert isinstance(by_steps, Slow)
    assert (judged.comparison.source, judged.comparison.meetings) == ("steps", 39)
    assert judged.comparison.residual_ns[1] < 10_000 < by_steps.comparison.residual_ns[1]
    assert judged.culprits == (1,)
    assert judged.gain_ns == pytest.approx(by_steps.gain_ns, rel=0.1)


def test_waiting_in_another_group_is_not_held_against_a_rank() -> None:
    """Ranks 0 and 1 meet, then 1 and 2: rank 0 is slow, so rank 1 comes late to 2 without being to blame."""
    steps = np.arange(1, 31)
    at = steps * 100 * MS
    first = {0: at + 30 * MS, 1: at + 10 * MS}
    second = {1: at + 32 * MS, 2: at + 10 * MS}

    def build(*groups: tuple[str, np.ndarray, int]) -> Calls:
        kinds = tuple((group, "allreduce") for group, _, _ in groups)
        rows = [
            (kind, s, b, e)
            for kind, (_, begin, end) in enumerate(groups)
            for s, b, e in zip(steps, begin, at + end, strict=True)
        ]
        kind, step, begin, end = (
            np.array(column) for column in zip(*sorted(rows, key=lambda row: row[2]), strict=True)
        )
        size = np.ones(len(kind), np.int64)
        return Calls(kinds, kind, step, step, 0 * kind, begin, end - begin, -size, -size, 2 * size)

    calls = {
        0: build(("a", first[0], 31 * MS)),
        1: build(("a", first[1], 31 * MS), ("b", second[1], 33 * MS)),
        2: build(("b", second[2], 33 * MS)),
    }
    found = must(measure_calls(match_calls(calls, one_clock=True)))
    _, late = found.sum_by_step()
    assert late[0].mean() == pytest.approx(20 * MS, rel=0.1)
    assert late[1].mean() == pytest.approx(MS, rel=0.1)  # what it does between the two


def test_calls_that_only_some_ranks_have_listed_change_nothing() -> None:
    """Ranks list DDP's reductions at different rates: those of one rank alone are no waits of another group."""
    job = make_job(replace(SLOW, calls=1))
    whole = {rank: make_calls(job, rank) for rank in range(8)}
    listed = {rank: take(calls, (calls.step % 4 == 0) | (rank == 0)) for rank, calls in whole.items()}
    for rank, calls in listed.items():  # and each meets the others in a second group at first
        listed[rank] = replace(calls, kinds=(*calls.kinds, ("other", "barrier")), kind=np.where(calls.step == 4, 1, 0))
    found = must(measure_calls(match_calls(listed, one_clock=True)))
    _, late = found.sum_by_step()
    assert late[5, 1:].mean() == pytest.approx(0.2 * STEP_NS, rel=0.05)
    assert np.abs(late[0, 1:]).max() < 0.02 * STEP_NS


def test_who_came_last_is_not_said_of_calls_that_a_rank_has_not_listed() -> None:
    """The late rank is hardly held in DDP's reductions, and short ones are not listed: only the others are left."""
    job = make_job(replace(SLOW, calls=1))
    whole = {rank: make_calls(job, rank) for rank in range(8)}
    first_and_last = {1, 40, *range(5, 40, 4)}
    listed = {rank: take(own, np.isin(own.step, list(first_and_last)) | (rank != 5)) for rank, own in whole.items()}
    rows = {row.rank: row for row in sum_collectives(match_calls(listed, one_clock=True))}
    assert {rank: row.late for rank, row in rows.items() if row.late} == {5: 11}
    assert (rows[0].count, rows[0].matched) == (40, 11)


def test_detailed_windows_and_a_few_listed_steps_do_not_decide_where_all_steps_tell_waiting() -> None:
    job = make_job(replace(SLOW, calls=1))
    ranks = [
        replace(rank, calls=take(make_calls(job, rank.rank), np.arange(40) % 8 == 0)) for rank in summarize_job(job)
    ]
    judged = judge_ranks(ranks)
    assert isinstance(judged, Slow)
    assert (judged.comparison.source, judged.comparison.steps, judged.culprits) == ("steps", 40, (5,))


def test_the_step_whose_first_meeting_tells_nothing_is_left_out() -> None:
    """What lies before the very first collective is not known; a step that lacks a part of it would say too little."""
    plan = JobPlan(calls=4, steps=12, slow=(2,), slow_frac=0.4, noise_frac=0.0)
    judged = judge_ranks(summarize_job(make_job(plan)))
    assert isinstance(judged, Slow)
    assert (judged.culprits, judged.comparison.last_frac[2], judged.comparison.steps) == ((2,), 1.0, 11)
    assert judged.gain_ns == pytest.approx(0.4 * STEP_NS, rel=0.005)


def test_a_few_calls_of_a_detailed_window_that_end_apart_do_not_part_ranks_that_meet_in_all_others() -> None:
    job = make_job(SLOW)
    calls = {}
    for rank in range(8):
        own = make_calls(job, rank)
        few, kind = np.arange(20, 26, 2), own.kind.copy()
        kind[few] = 1
        start = own.start_ns.copy()
        start[few] += np.array([0, 6, 12]) * rank * MS
        calls[rank] = replace(own, kinds=(*own.kinds, ("window", "allreduce")), kind=kind, start_ns=start)
    assert match_calls(calls, one_clock=True).apart_ns == {}


TWO_JOBS = JobPlan(ranks=8, steps=30, noise_frac=0.05, ranks_per_host=4, apart_ns=HOUR_NS, drift=2e-5)


def resize(calls: Calls, name: str = "allreduce") -> Calls:
    kinds = tuple((group, name) for group, _ in calls.kinds)
    return replace(calls, kinds=kinds, bytes=calls.bytes + 4096)


@pytest.mark.parametrize(
    "plan",
    [TWO_JOBS, replace(TWO_JOBS, noise_frac=0.02, steps=200), replace(TWO_JOBS, takes_turns=True, slow_frac=0.5)],
)
def test_ranks_that_do_not_leave_collectives_at_one_moment_are_of_two_jobs(plan: JobPlan) -> None:
    ours, others = summarize_job(make_job(plan)), summarize_job(make_job(replace(plan, seed=1)))
    judged = judge_ranks([*ours[:5], *others[5:]])
    assert judged == Strangers((5, 6, 7), (0, 1, 2, 3, 4), "times")
    said = describe_straggler(judged)
    assert said.startswith(
        "Not judged: ranks 5, 6, 7 leave their collectives at other moments than ranks 0, 1, 2, 3, 4"
    )


def test_messages_of_other_sizes_tell_two_jobs_in_step() -> None:
    ranks = summarize_job(make_job(TWO_JOBS))
    judged = judge_ranks(
        [*ranks[:6], *(replace(rank, calls=resize(make_calls(make_job(TWO_JOBS), rank.rank))) for rank in ranks[6:])]
    )
    assert judged == Strangers((6, 7), (0, 1, 2, 3, 4, 5), "bytes")
    assert "the messages of ranks 6, 7 have other sizes" in describe_straggler(judged)


@pytest.mark.parametrize(
    "plan", [TWO_JOBS, replace(TWO_JOBS, slow=(5,), slow_frac=0.3), replace(TWO_JOBS, steps=400, calls=3)]
)
def test_ranks_of_one_job_are_no_strangers_however_late_and_whatever_their_clocks(plan: JobPlan) -> None:
    job = make_job(plan)
    matched = match_calls({rank: make_calls(job, rank) for rank in range(8)}, one_clock=False)
    assert matched.strangers is None
    assert set(np.bincount(matched.call).tolist()) == {8}


def test_an_uneven_exchange_is_one_of_one_job() -> None:
    job = make_job(TWO_JOBS)
    calls = {rank: make_calls(job, rank) for rank in range(8)}
    uneven = {rank: resize(own, "alltoall") for rank, own in calls.items()}
    uneven[3] = replace(uneven[3], bytes=uneven[3].bytes * 2)
    assert match_calls(uneven, one_clock=False).strangers is None


@pytest.mark.parametrize(("behind_ms", "by"), [(0.0, None), (500.0, "times")])
def test_calls_that_nobody_is_held_in_do_not_part_ranks_of_one_host_in_the_same_step(
    behind_ms: float, by: str | None
) -> None:
    """`Join` begins one in each step by the way; it ends for each rank by itself. A second job is some steps behind."""
    step = np.arange(1, 41)
    varies = np.random.default_rng(2).uniform(-15.0, 15.0, (3, 40))
    calls = {}
    for rank in range(3):
        start = np.round((step * 100.0 + varies[rank] + (behind_ms if rank == 2 else 0.0)) * MS).astype(np.int64)
        short, four = np.full(40, MS // 5), np.full(40, 4)
        calls[rank] = Calls((("", "allreduce"),), 0 * step, step, step, 0 * step, start, short, short, four, four - 1)
    found = match_calls(calls, one_clock=True).strangers
    assert (found.by if found is not None else None) == by
