"""Ranks on one clock: clocks that are hours apart, ranks of unlike lengths, ranks without collectives or a common group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector.format.intervals import Ints
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.one_clock import RankClock, align_ranks, choose_example
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.diagnosis.clock_sentences import describe_clocks
from tests.support.jobs import Job, JobPlan, make_job, summarize_job, take
from tests.support.must import must

HOUR_NS = 3_600_000_000_000
PLAN = JobPlan(ranks=4, steps=40, calls=2, slow=(2,), slow_frac=0.2, ranks_per_host=1, apart_ns=7 * HOUR_NS, drift=5e-5)
LEFT_APART_NS = 20_000
"""The ranks of a job leave a meeting within 5 µs; a drift is fitted through that."""


def place(clock: RankClock, times_ns: Ints) -> Ints:
    return clock.place(times_ns.ravel())


def cut(rank: RankSummary, chosen: slice) -> RankSummary:
    """Return a rank that recorded only some of its calls."""
    assert rank.calls is not None
    return replace(rank, calls=take(rank.calls, chosen))


def rename_group(rank: RankSummary, group: str) -> RankSummary:
    assert isinstance(rank.calls, Calls)
    return replace(rank, calls=replace(rank.calls, kinds=((group, "allreduce"),)))


def check(job: Job, clocks: tuple[RankClock, ...]) -> None:
    first = place(clocks[0], job.end_ns[clocks[0].rank])
    for clock in clocks:
        assert np.abs(place(clock, job.end_ns[clock.rank]) - first).max() < LEFT_APART_NS


def test_clocks_that_are_hours_apart_and_drift_are_put_on_that_of_the_first() -> None:
    job = make_job(PLAN)
    ranks = summarize_job(job)
    clocks = align_ranks([ranks[2], ranks[0], ranks[3]])
    assert [(clock.rank, clock.known) for clock in clocks] == [(2, "reference"), (0, "aligned"), (3, "aligned")]
    check(job, clocks)
    for clock in clocks[1:]:
        assert clock.calls == 80
        assert clock.apart_ns is not None
        assert 0 < clock.apart_ns < LEFT_APART_NS
        assert abs(clock.shift_ns) > 60e9


def test_a_time_is_read_back_from_the_common_clock() -> None:
    job = make_job(PLAN)
    _, clock = align_ranks(summarize_job(job)[:2])
    times = job.end_ns[1].ravel()
    placed = place(clock, times).tolist()
    assert [clock.read_back(time) for time in placed] == pytest.approx(times.tolist(), abs=2)


def test_a_rank_that_was_cut_short_is_aligned_and_costs_the_others_no_call() -> None:
    job = make_job(PLAN)
    ranks = list(summarize_job(job))
    ranks[1] = cut(ranks[1], slice(30, 36))
    clocks = align_ranks(ranks)
    assert [clock.calls for clock in clocks] == [0, 6, 80, 80]
    assert [clock.known for clock in clocks[1:]] == ["aligned"] * 3
    own = place(clocks[1], job.end_ns[1].ravel()[30:36])
    assert np.abs(own - job.end_ns[0].ravel()[30:36]).max() < 5 * LEFT_APART_NS


@pytest.mark.parametrize(("calls", "lack"), [(slice(0, 0), "none shared"), (slice(0, 2), "few shared")])
def test_a_rank_with_too_few_collectives_says_so(calls: slice, lack: str) -> None:
    ranks = list(summarize_job(make_job(PLAN)))
    ranks[3] = cut(ranks[3], calls)
    clocks = align_ranks(ranks)
    assert (clocks[3].known, clocks[3].lack, clocks[3].shift_ns, clocks[3].apart_ns) == ("unknown", lack, 0, None)
    assert clocks[1].known == "aligned"


@pytest.mark.parametrize(("is_read", "lack"), [(True, "no calls"), (False, "unread")])
def test_a_rank_without_collectives_or_that_cannot_be_read_has_no_common_clock(is_read: bool, lack: str) -> None:
    ranks = list(summarize_job(make_job(PLAN)))
    ranks[3] = replace(ranks[3], calls=None, is_read=is_read)
    assert (align_ranks(ranks)[3].known, align_ranks(ranks)[3].lack) == ("unknown", lack)


def test_ranks_of_one_host_share_its_clock_with_collectives_or_without() -> None:
    job = make_job(replace(PLAN, ranks_per_host=4))
    ranks = list(summarize_job(job))
    ranks[3] = replace(ranks[3], calls=None)
    clocks = align_ranks(ranks)
    assert [clock.known for clock in clocks] == ["reference", "host", "host", "host"]
    assert [clock.shift_ns for clock in clocks] == [0, 0, 0, 0]
    assert clocks[1].apart_ns is not None
    assert clocks[3].apart_ns is None


def test_ranks_that_share_no_group_are_aligned_through_a_third() -> None:
    job = make_job(replace(PLAN, ranks=3))
    ranks = list(summarize_job(job))
    both = must(ranks[1].calls)
    half = len(both.kind) // 2
    kind = np.concatenate([np.zeros(half, np.int64), np.ones(len(both.kind) - half, np.int64)])
    ranks[1] = replace(ranks[1], calls=replace(both, kinds=(("left", "allreduce"), ("right", "allreduce")), kind=kind))
    ranks[0] = rename_group(cut(ranks[0], slice(0, half)), "left")
    ranks[2] = rename_group(cut(ranks[2], slice(half, None)), "right")
    clocks = align_ranks(ranks)
    assert [clock.known for clock in clocks] == ["reference", "aligned", "aligned"]
    ends = [place(clock, job.end_ns[clock.rank]) for clock in clocks]
    # The drift of each pair is fitted over half of the run only.
    assert max(np.abs(end - ends[0]).max() for end in ends) < 20 * LEFT_APART_NS


def test_the_slow_rank_and_two_that_wait_for_it_are_worth_seeing() -> None:
    example = must(choose_example(summarize_job(make_job(replace(PLAN, ranks=6, ranks_per_host=6)))))
    assert example.ranks[0] == 2
    assert len(set(example.ranks)) == 3
    assert example.step is not None
    assert 1 <= example.step <= PLAN.steps
    assert choose_example(summarize_job(make_job(PLAN))[:1]) is None


FIRST = RankClock(0, "reference")


@pytest.mark.parametrize(
    ("clocks", "sentence"),
    [
        ((FIRST,), ""),
        ((FIRST, RankClock(1, "host")), "The ranks share the clock of their host."),
        (
            (FIRST, RankClock(3, "aligned", 0, -2_310_000_000, 0.0, 48_000.0, 60)),
            "The clocks agree within 48.0 µs at the 95th percentile of 60 collectives. Times are those of rank 0; shifted: "
            "rank 3 by −2.31 s.",
        ),
        (
            (FIRST, RankClock(3, "unknown", lack="few shared"), RankClock(4, "unknown", lack="few shared")),
            "The clock of ranks 3, 4 cannot be aligned (it shares fewer than three collectives with the others): ranks 3, "
            "4 are shown from their own starts, and their times cannot be compared with those of rank 0.",
        ),
    ],
)
def test_clocks_are_described(clocks: tuple[RankClock, ...], sentence: str) -> None:
    assert describe_clocks(clocks) == sentence
