"""Thresholds of what a change must gain to be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from profiler_server.diagnosis.judging import hear_rules, judge
from profiler_server.diagnosis.ranking import (
    _choose,
    _is_muted,
    is_sure,
    is_worth_saying,
    split_findings,
    write_suggestion,
)
from profiler_server.diagnosis.verdict import _prepares_little, _say_confidence, _say_idle, find_bound
from profiler_server.facts.case import Case, Claim, Effort, Finding, Rule, Text, WhatIf
from profiler_server.facts.results import BoundBy
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import STEPS, Edge, base, starving, whole


def claim_of(gain_ns: float, effort: Effort = "code") -> Claim:
    finding = Finding(Text(*"tmtacf"), (), doubt_frac=0.0)
    rule = Rule("x", "x", effort, lambda case: None, muted_when_input_bound=True)
    step_ns = base().steps.mean_ns - gain_ns
    return Claim(rule, finding, step_ns, step_ns, step_ns, step_ns, gain_ns, gain_ns)


def steady(count: int) -> Case:
    case = base()
    return make.with_steps(case, selection=replace(case.steps.selection, regular=np.arange(STEPS) < count))


def severity(share: float) -> str:
    return write_suggestion(base(), claim_of(share * base().steps.mean_ns)).severity


def contended(share: float) -> bool:
    case = make.with_loop(base(), contention_frac=0.4)
    return is_sure(case, claim_of(share * base().steps.mean_ns))


def doubtful(share: float) -> bool:
    """Judge a change that shortens this share of the step, gains enough, and is in doubt."""
    claim = claim_of(0.1 * base().steps.mean_ns)
    what_if = WhatIf(lambda model: model, {"gap": share * base().steps.mean_ns})
    return is_worth_saying(base(), replace(claim, sure_gain_ns=0.0, finding=replace(claim.finding, what_if=what_if)))


def short_step(gain_ns: float) -> bool:
    return is_sure(make.with_steps(base(), mean_ns=2.0 * MS), claim_of(gain_ns))


def predicts(check: float) -> bool:
    """Say whether a change to loading is predicted where the simulation gives this share of the measured step."""
    case = make.with_batches(make.with_loop(starving(), check=check), np.full(STEPS, 100.0 * MS))
    believed, doubted = split_findings(case, hear_rules(case).findings)
    assert [rule.id for rule, _ in (*believed, *doubted) if rule.id == "slow_read"] == ["slow_read"]
    return "slow_read" in [rule.id for rule, _ in believed]


def comes_first(share: float) -> bool:
    """Say whether a slow rank comes before communication, of whose gain mending it has this share."""
    communication, mended = claim_of(10e6), claim_of(share * 10e6)
    claims = [
        replace(claim, rule=replace(claim.rule, knob=knob))
        for claim, knob in ((communication, "communication"), (mended, "straggler"))
    ]
    return _choose(claims, 64e6).rule.knob == "straggler"


def prepares(share: float) -> bool:
    phases = dict.fromkeys(base().steps.phases_ns, 0.0) | {"gap": 1e6, "tail": 3e6, "h2d": share * 4e6}
    return not _prepares_little(make.with_steps(base(), phases_ns=phases))


def idles_between(share: float) -> bool:
    """Say whether the idle time between kernels is told, which is this share of what the launches hold the step up."""
    case = make.with_device(base(), busy=1.0 - 0.4 * share)
    return "mostly before its first" not in _say_idle(case, BoundBy("launch", None, 0.4, 1.0))


EDGES: Mapping[str, Edge] = {
    "MIN_STEPS": Edge(20, lambda x: "all" not in [entry.rule for entry in judge(steady(whole(x))).abstained]),
    "MIN_GAIN_FRAC": Edge(0.05, lambda x: is_sure(base(), claim_of(x * base().steps.mean_ns))),
    "MIN_GAIN_NS": Edge(500_000.0, short_step),
    "CONTENTION_WEIGHT": Edge(0.25, lambda x: contended(0.05 + 0.4 * x)),
    "LEAST_CHECK_FRAC": Edge(0.75, predicts),
    "MOST_CHECK_FRAC": Edge(1.33, lambda x: not predicts(x)),
    "CLOSE_FRAC": Edge(
        0.10, lambda x: _choose([claim_of(10e6), claim_of((1 - x) * 10e6, "flag")], 64e6).rule.effort == "code"
    ),
    "LARGE_PART_FRAC": Edge(0.20, doubtful),
    "MUCH_OF_BEST_FRAC": Edge(0.5, comes_first),
    "LITTLE_FRAC": Edge(0.05, prepares),
    "BETWEEN_FRAC": Edge(0.25, idles_between),
    "MUTE_WAIT_FRAC": Edge(0.20, lambda x: _is_muted(starving(x), claim_of(1.0).rule)),
    "HIGH_GAIN_FRAC": Edge(0.20, lambda x: severity(x) == "high"),
    "LOW_GAIN_FRAC": Edge(0.10, lambda x: severity(x) != "low"),
    "SURE_FRAC": Edge(0.90, lambda x: _say_confidence(1000, round(1000 * x), False).startswith("sure")),
    "LIKELY_FRAC": Edge(0.60, lambda x: _say_confidence(1000, round(1000 * x), False).startswith("fairly sure")),
    "BOUND_FRAC": Edge(0.10, lambda x: find_bound(make.split_step(base(), tail=x)).kind == "overhead"),
}
