"""Two jobs in one folder whose steps are equally long: nobody is blamed for ranks that were never met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.matching import match_calls
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_straggler
from profiler_server.facts.job import Strangers
from tests.support.jobs import JobPlan, make_calls, make_job, summarize_job
from tests.support.runs import MS

HOUR_NS = 3600e9
PLAN = JobPlan(ranks=8, steps=30, noise_frac=0.05, ranks_per_host=4, apart_ns=HOUR_NS, drift=2e-5)


def resize(calls: Calls, name: str = "allreduce") -> Calls:
    kinds = tuple((group, name) for group, _ in calls.kinds)
    return replace(calls, kinds=kinds, bytes=calls.bytes + 4096)


@pytest.mark.parametrize(
    "plan", [PLAN, replace(PLAN, noise_frac=0.02, steps=200), replace(PLAN, takes_turns=True, slow_frac=0.5)]
)
def test_ranks_that_do_not_leave_collectives_at_one_moment_are_of_two_jobs(plan: JobPlan) -> None:
    ours, others = summarize_job(make_job(plan)), summarize_job(make_job(replace(plan, seed=1)))
    judged = judge_ranks([*ours[:5], *others[5:]])
    assert judged == Strangers((5, 6, 7), (0, 1, 2, 3, 4), "times")
    said = describe_straggler(judged)
    assert said.startswith("Ranks 5, 6, 7 cannot have been in the collectives of ranks 0, 1, 2, 3, 4: they leave them")


def test_messages_of_other_sizes_tell_two_jobs_in_step() -> None:
    ranks = summarize_job(make_job(PLAN))
    judged = judge_ranks(
        [*ranks[:6], *(replace(rank, calls=resize(make_calls(make_job(PLAN), rank.rank))) for rank in ranks[6:])]
    )
    assert judged == Strangers((6, 7), (0, 1, 2, 3, 4, 5), "bytes")
    assert "their messages have other sizes" in describe_straggler(judged)


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, slow=(5,), slow_frac=0.3), replace(PLAN, steps=400, calls=3)])
def test_ranks_of_one_job_are_no_strangers_however_late_and_whatever_their_clocks(plan: JobPlan) -> None:
    job = make_job(plan)
    matched = match_calls({rank: make_calls(job, rank) for rank in range(8)}, one_clock=False)
    assert matched.strangers is None
    assert set(np.bincount(matched.call).tolist()) == {8}


def test_an_uneven_exchange_is_one_of_one_job() -> None:
    job = make_job(PLAN)
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
