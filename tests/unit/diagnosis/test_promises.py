"""No rule on one rank's own work promises more than the job gains, where the others wait for a slow rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.diagnosis.what_if import feed, shorten_phases
from profiler_server.facts.case import Case, Finding, Rule, Text, WhatIf
from profiler_server.facts.job import Alike, Peer, RankVerdict, Slow
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.noted import compared

BEHIND, SPENT = 12 * MS, 20 * MS
SLOW = Slow(compared(BEHIND))


def seen_from(rank: int, verdict: RankVerdict, peer_ms: float) -> Case:
    """Return one of two ranks whose tail takes 20 ms, and that of the other so much."""
    case = make.with_share(base(), "tail", SPENT / base().steps.mean_ns)
    peer = Peer(1 - rank, dict.fromkeys(case.steps.phases_ns, 0.0) | {"tail": peer_ms * MS})
    ranks = replace(case.ranks, world_size=2, peers=(peer,), verdict=verdict)
    return make.with_manifest(replace(case, ranks=ranks), rank=rank)


def promise(case: Case, what_if: WhatIf) -> float:
    """Return the step that is promised, as what is gained."""
    rule = Rule("x", knob="x", effort="code", judge=lambda case: None)
    finding = Finding(Text(*"tmtacf"), (), what_if=what_if, doubt_frac=0.0)
    claim = make_claim(case, rule, finding, Fixed(case.loading.loop.model, case.steps.mean_ns, {}))
    return case.steps.mean_ns - claim.step_ns


def halve_tail(case: Case) -> float:
    return promise(case, shorten_phases(case, ("tail",), 0.9))


def test_what_only_a_waiting_rank_does_gains_the_job_nothing() -> None:
    alone = halve_tail(seen_from(0, Alike(compared()), 0.0))
    assert alone == pytest.approx(0.9 * SPENT, rel=0.02)
    assert halve_tail(seen_from(0, SLOW, 0.0)) == 0.0
    assert halve_tail(seen_from(0, SLOW, 10.0)) == pytest.approx(alone / 2)


def test_what_all_ranks_do_gains_the_job_all_of_it() -> None:
    alone = halve_tail(seen_from(0, Alike(compared()), 20.0))
    assert halve_tail(seen_from(0, SLOW, 20.0)) == pytest.approx(alone)
    assert halve_tail(seen_from(1, SLOW, 20.0)) == pytest.approx(alone)


def test_a_slow_rank_alone_gains_no_more_than_what_it_is_late_by() -> None:
    assert halve_tail(seen_from(1, SLOW, 0.0)) == pytest.approx(BEHIND)
    assert halve_tail(seen_from(1, SLOW, 4.0)) == pytest.approx(BEHIND)


def test_where_waiting_was_not_seen_nothing_bounds_a_promise() -> None:
    hidden = Slow(compared(BEHIND, is_hidden=True))
    assert halve_tail(seen_from(0, hidden, 0.0)) == pytest.approx(0.9 * SPENT, rel=0.02)


def test_a_loader_is_bound_as_any_other_work() -> None:
    case = make.with_wait(seen_from(1, SLOW, 0.0), 0.5)
    case = make.with_jobs(make.with_model(case, workers=1), 64.0 * MS, 1.0)
    gain = promise(case, feed(case, lambda model: replace(model, workers=4)))
    assert gain <= BEHIND
