"""Of all that holds of the ranks one verdict is given, by one precedence, and each says whom it names and what is gained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.analysis.ranks.ranks import RankSummary, summarize_ranks
from profiler_server.analysis.ranks.stragglers import PRECEDENCE, decide_verdict, judge_ranks
from profiler_server.diagnosis.rank_sentences import describe_evidence, describe_headline, describe_straggler
from profiler_server.facts.job import (
    Alike,
    Apart,
    Handover,
    HeavyStage,
    NotJudged,
    Pause,
    RankComparison,
    RankVerdict,
    Slow,
    Strangers,
    Turns,
    UnevenWork,
    Unsure,
)
from profiler_server.report.all_ranks import list_verdict
from tests.support.jobs import STEP_NS, JobPlan, make_job, summarize_job
from tests.support.machines import build_ranks
from tests.support.meetings import compare
from tests.support.must import must
from tests.support.row_edits import write_rows
from tests.support.runs import MS

ONE: Mapping[type[RankVerdict], RankVerdict] = {
    Apart: Apart({0: 10 * MS, 1: 20 * MS}),
    Strangers: Strangers((1,), (0, 2), "bytes"),
    NotJudged: NotJudged((1,)),
    Handover: Handover(compare(), 31, 0, 20 * MS, 1, 30 * MS, 25 * MS),
    Slow: Slow(compare()),
    HeavyStage: HeavyStage(compare(), 3, (6, 7), 30 * MS, 20 * MS, 9 * MS),
    UnevenWork: UnevenWork(compare(), 8 * MS),
    Turns: Turns(compare(), 20 * MS, (), 1.0),
    Unsure: Unsure(compare()),
    Alike: Alike(compare()),
}
PAIRS = [(first, second) for above, below in pairwise(PRECEDENCE) for first in above for second in below]
NAMING: Mapping[type[RankVerdict], tuple[int, ...]] = {Handover: (0, 1), Slow: (1,), HeavyStage: (6, 7)}


def test_every_verdict_has_its_place() -> None:
    kinds = [kind for kinds in PRECEDENCE for kind in kinds]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == set(get_args(RankVerdict)) == set(ONE)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_verdicts_that_hold_the_first_is_given(first: type[RankVerdict], second: type[RankVerdict]) -> None:
    assert decide_verdict([ONE[second], ONE[first]]) is ONE[first]
    assert decide_verdict([ONE[first], ONE[second]]) is ONE[first]


@pytest.mark.parametrize(("gain_ms", "kind"), [(8, HeavyStage), (10, UnevenWork)])
def test_of_two_causes_of_a_pipeline_that_is_given_by_which_the_job_gains_more(
    gain_ms: int, kind: type[RankVerdict]
) -> None:
    assert isinstance(decide_verdict([UnevenWork(compare(), gain_ms * MS), ONE[HeavyStage]]), kind)


@pytest.mark.parametrize("kind", ONE)
def test_every_verdict_says_whom_it_names_and_has_a_sentence(kind: type[RankVerdict]) -> None:
    verdict = ONE[kind]
    assert verdict.culprits == NAMING.get(kind, ())
    assert verdict.gain_ns >= 0.0
    assert describe_straggler(verdict).endswith((".", "?"))
    assert "None" not in describe_straggler(verdict) + describe_evidence(verdict)


@pytest.mark.parametrize("kind", ONE)
def test_what_holds_a_job_up_comes_first_and_nothing_else_does(kind: type[RankVerdict]) -> None:
    comes_first = bool(NAMING.get(kind)) or kind is UnevenWork
    assert describe_headline(ONE[kind]) == (describe_straggler(ONE[kind]) if comes_first else "")


def test_the_report_has_the_same_keys_for_every_verdict_and_a_word_for_each() -> None:
    listed = [list_verdict(verdict) for verdict in ONE.values()]
    assert {frozenset(entry) for entry in listed} == {frozenset(listed[0])}
    assert [entry["verdict"] for entry in listed] == [
        *("apart", "strangers", "not_judged", "handover", "slow"),
        *("heavy_stage", "uneven_work", "turns", "unsure", "alike"),
    ]


def test_turns_that_may_be_chance_do_not_come_first() -> None:
    turns = Turns(compare(), 20 * MS, (), 1.0)
    assert describe_headline(turns) == ""
    assert describe_headline(replace(turns, is_one_phase=True)) == describe_straggler(turns)


def test_of_ranks_that_are_alike_a_single_long_wait_comes_first() -> None:
    pause = Pause(1, 71, 7e9, 1, (70, 71), 0.1 * MS, ())
    said = describe_headline(Alike(replace(compare(), pause=pause)))
    assert said.startswith("At step 71 rank 1 held the other rank up 7.00 s")


SLOW = JobPlan(ranks=6, steps=60, slow=(2,), slow_frac=0.2)


def collect(rank: RankSummary, chosen: np.ndarray, pause_ns: float) -> RankSummary:
    """Let a rank collect garbage for so long in some of its steps, within the forward."""
    pauses = np.where(chosen, pause_ns, 0.0).astype(np.float32)
    return replace(rank, together=replace(rank.together, collecting_ns=pauses))


def compare_job(ranks: Sequence[RankSummary]) -> RankComparison:
    return must(judge_ranks(ranks).comparison)


@pytest.mark.parametrize("phase", ["data_wait", "backward", "optimizer"])
def test_the_phase_that_makes_a_rank_late_is_named(phase: str) -> None:
    first = compare_job(summarize_job(make_job(replace(SLOW, phase=phase)))).latest.causes[0]
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
    assert compare_job(even).uneven_correlation is None
    assert compare_job(uneven).uneven_correlation is not None
    assert "Batches of unequal length do this." in describe_evidence(judge_ranks(uneven))


def test_a_slow_device_is_no_input_of_another_length() -> None:
    job = make_job(JobPlan(ranks=6, steps=60))
    job.work_ns[:, 2] *= 1.3
    assert compare_job(summarize_job(job)).uneven_correlation is None


def test_garbage_collection_by_turns_is_weighed_against_collecting_together() -> None:
    random = np.random.default_rng(1)
    pause = 0.3 * STEP_NS
    ranks = [
        collect(rank, random.random(60) < 0.05, pause) for rank in summarize_job(make_job(replace(SLOW, ranks=16)))
    ]
    found = must(compare_job(ranks).garbage)
    assert found.gain_ns == pytest.approx(pause * (1 - (1 - found.chance) ** 16 - found.chance))
    assert "collecting on all ranks at the same step" in describe_evidence(judge_ranks(ranks))


def test_one_rank_that_collects_often_gains_nothing_by_collecting_when_others_do() -> None:
    ranks = list(summarize_job(make_job(JobPlan(ranks=3, steps=60, slow=(2,), slow_frac=0.2))))
    ranks[2] = collect(ranks[2], np.arange(60) % 5 == 0, 0.3 * STEP_NS)
    assert compare_job(ranks).garbage is None
    assert "gc.collect()" not in describe_evidence(judge_ranks(ranks))
