"""Why a rank is late: what it did longer, and causes that show in how the steps vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.analysis.ranks.ranks import RankSummary, summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_evidence, describe_straggler
from profiler_server.facts.job import RankComparison
from tests.support.jobs import STEP_NS, JobPlan, make_job, summarize_job
from tests.support.machines import build_ranks
from tests.support.must import must
from tests.support.row_edits import write_rows
from tests.support.runs import MS

SLOW = JobPlan(ranks=6, steps=60, slow=(2,), slow_frac=0.2)


def collect(rank: RankSummary, chosen: np.ndarray, pause_ns: float) -> RankSummary:
    """Let a rank collect garbage for so long in some of its steps, within the forward."""
    pauses = np.where(chosen, pause_ns, 0.0).astype(np.float32)
    return replace(rank, together=replace(rank.together, collecting_ns=pauses))


def compare(ranks: Sequence[RankSummary]) -> RankComparison:
    return must(judge_ranks(ranks).comparison)


@pytest.mark.parametrize("phase", ["data_wait", "backward", "optimizer"])
def test_the_phase_that_makes_a_rank_late_is_named(phase: str) -> None:
    first = compare(summarize_job(make_job(replace(SLOW, phase=phase)))).latest.causes[0]
    assert first.name == phase
    assert first.share_frac > 0.8
    assert first.excess_ns == pytest.approx(0.2 * STEP_NS, rel=0.05)


def test_garbage_collection_is_named_before_the_phase_that_it_came_in() -> None:
    ranks = list(summarize_job(make_job(SLOW)))
    ranks[2] = collect(ranks[2], np.ones(60, np.bool_), 0.2 * STEP_NS)
    assert ": garbage collection." in describe_straggler(judge_ranks(ranks))


def test_a_rank_without_a_processor_is_told_apart_from_one_that_computes_longer(tmp_path: Path) -> None:
    path = build_ranks(tmp_path / "run", 4, slow=3)
    for rank in range(4):
        share = 0.2 if rank == 3 else 0.01
        common = {"source": "process", "metric": "run_queue_frac", "value": share}
        write_rows(layout.rank_path(path, rank), "resources", [{**common, "start_ns": n * MS} for n in range(20)])
    judged = judge_ranks(summarize_ranks(open_run(path)))
    assert describe_straggler(judged).startswith("Rank 3 holds 3 others up 12.0 ms a step (15.0 %): no free processor.")


def test_inputs_of_unlike_length_show_in_forward_and_backward_together() -> None:
    even, uneven = (summarize_job(make_job(JobPlan(ranks=6, steps=60, uneven_frac=frac))) for frac in (0.0, 0.3))
    assert compare(even).uneven_correlation is None
    assert compare(uneven).uneven_correlation is not None
    assert "as batches of unlike length would" in describe_evidence(judge_ranks(uneven))


def test_a_slow_device_is_no_input_of_another_length() -> None:
    job = make_job(JobPlan(ranks=6, steps=60))
    job.work_ns[:, 2] *= 1.3
    assert compare(summarize_job(job)).uneven_correlation is None


def test_garbage_collection_by_turns_is_weighed_against_collecting_together() -> None:
    random = np.random.default_rng(1)
    pause = 0.3 * STEP_NS
    ranks = [
        collect(rank, random.random(60) < 0.05, pause) for rank in summarize_job(make_job(replace(SLOW, ranks=16)))
    ]
    found = must(compare(ranks).garbage)
    assert found.gain_ns == pytest.approx(pause * (1 - (1 - found.chance) ** 16 - found.chance))
    assert "collecting on all ranks at the same step" in describe_evidence(judge_ranks(ranks))


def test_one_rank_that_collects_often_gains_nothing_by_collecting_when_others_do() -> None:
    ranks = list(summarize_job(make_job(JobPlan(ranks=3, steps=60, slow=(2,), slow_frac=0.2))))
    ranks[2] = collect(ranks[2], np.arange(60) % 5 == 0, 0.3 * STEP_NS)
    assert compare(ranks).garbage is None
    assert "gc.collect()" not in describe_evidence(judge_ranks(ranks))
