"""A collective that is slow when all ranks have come is told from a late rank, from a long message and from a queue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_server.analysis.ranks.collectives import find_slow_call
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_ranks, describe_slow_call
from tests.support.jobs import JobPlan, make_job, summarize_job
from tests.support.must import must
from tests.support.runs import MS

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
    assert said.startswith("allreduce 3 of 5 of group default in a step (25.0 MiB) is slow: ")
    assert said in describe_ranks(ranks, (), judge_ranks(ranks), find_slow_call(ranks))
    assert describe_slow_call(None) == ""
