"""Of all that holds of the ranks one verdict is given, by one precedence, and each says whom it names and what is gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest

from profiler_server.analysis.ranks.stragglers import PRECEDENCE, decide_verdict
from profiler_server.diagnosis.rank_sentences import describe_evidence, describe_headline, describe_straggler
from profiler_server.facts.job import (
    Alike,
    Apart,
    Handover,
    HeavyStage,
    NotJudged,
    Pause,
    RankVerdict,
    Slow,
    Strangers,
    Turns,
    UnevenWork,
    Unsure,
)
from profiler_server.report.all_ranks import list_verdict
from tests.support.meetings import compare
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
    assert describe_straggler(verdict).endswith(".")
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
