"""Turns findings into claims about a step time, and orders the claims without contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from collector.estimating.model import LoopModel
from profiler_server.analysis.data.prediction import (
    Doubt,
    FedStep,
    find_doubt,
    predict_fed_step,
    predict_step,
    predict_without_loading,
)
from profiler_server.diagnosis.limits import verdict as limits
from profiler_server.diagnosis.limits.facts import LARGE_PART_FRAC, MIN_GAIN_FRAC, MIN_GAIN_NS
from profiler_server.diagnosis.what_if import bound_by_job, find_min_gain_ns, name_shortened
from profiler_server.facts.case import Case, Claim, Finding, Rule, WhatIf
from profiler_server.facts.results import Suggestion
from profiler_server.format import format_duration, format_share

_OF_SLOW_RANK = frozenset({"straggler", "rank_loader"})
Severity = Literal["high", "medium", "low", "info"]

_TIERS = {
    "M": "Simulated with the recorded batch times.",
    "A": "Computed from the measured times.",
    "R": "The range is wide because it is not known beforehand how much of the time a better version saves.",
}


def is_worth_saying(case: Case, claim: Claim) -> bool:
    """Return whether even a poor version of the fix gains enough, and the doubt is smaller than the gain.

    A doubtful fix also passes, with less confidence, if the step starves for a known stage, or if the fix shortens a
    large share of the step. Silence would be wrong in both cases.
    """
    pays = claim.least_gain_ns >= max(MIN_GAIN_FRAC * case.steps.mean_ns, MIN_GAIN_NS)
    return pays and (is_sure(case, claim) or (claim.feeds and case.loading.is_starved) or _takes_much(case, claim))


def _takes_much(case: Case, claim: Claim) -> bool:
    what_if = claim.finding.what_if
    return (
        what_if is not None
        and not what_if.feeds
        and sum(what_if.touches.values()) >= LARGE_PART_FRAC * case.steps.mean_ns
    )


def is_sure(case: Case, claim: Claim) -> bool:
    """Return whether the gain is large enough after all doubt."""
    return claim.sure_gain_ns >= find_min_gain_ns(case)


@dataclass(frozen=True)
class Fixed:
    """The loop after some changes: its model, its predicted step, and the most that those changes can save."""

    model: LoopModel
    step_ns: float
    touched: Mapping[str, float]

    def find_floor_ns(self, case: Case, what_if: WhatIf) -> float:
        """Return the time of the mean step, in ns, that neither these changes nor the new change can shorten."""
        touched = {**self.touched}
        for part, part_ns in what_if.touches.items():
            touched[part] = max(touched.get(part, 0.0), part_ns)
        return max(case.steps.mean_ns - sum(touched.values()), 0.0)


def make_claim(case: Case, rule: Rule, finding: Finding, now: Fixed) -> Claim:
    """Predict the step after the change on top of others, with its range.

    Step times are promised only here. The prediction is never below the time that the change leaves untouched. The low
    end of the range may be below that time, because the rest of the thread's work may speed up. The low end is never
    zero.
    """
    what_if, now_ns, loop = finding.what_if, now.step_ns, case.loading.loop
    assert what_if is not None
    changed = what_if.change(now.model)
    floor_ns = min(now.find_floor_ns(case, what_if), now_ns)
    doubt = find_doubt(loop, now.model, changed)
    fed = _find_fed_step(case, what_if, now, changed, doubt)
    predicted = min(max(predict_step(loop, changed) if fed is None else fed.step_ns, floor_ns), now_ns)
    gain = bound_by_job(case, what_if, now_ns - predicted)
    predicted = now_ns - gain
    least, most = finding.gain_range
    best = predicted if what_if.best is None else predict_step(loop, what_if.best(now.model))
    low = min(predicted, now_ns - gain * most, best) - doubt.step_ns
    if what_if.feeds:  # no loading at all is the most that can be gained
        unfed_ns = predict_without_loading(loop, changed)
        low = max(low, min(predicted, unfed_ns) - doubt.chance_ns)
    quickest = min(predicted, best)
    eased = 1.0 - (limits.EASED_FRAC * (now_ns - quickest) / now_ns if what_if.eases and now_ns else 0.0)
    low = now_ns - bound_by_job(case, what_if, now_ns - min(low, quickest * eased))
    high = max(predicted, now_ns - gain * least) + doubt.step_ns
    if fed is not None:
        low, high = max(fed.low_ns, low), min(max(fed.high_ns, predicted), high)
    return Claim(
        least_gain_ns=gain * least,
        sure_gain_ns=gain - doubt.gain_ns,
        rule=rule,
        finding=finding,
        step_ns=predicted,
        low_ns=min(max(low, floor_ns * eased, limits.LEAST_LOW_FRAC * predicted), predicted),
        high_ns=min(high, now_ns),
        feeds=what_if.feeds,
        is_probed=fed is not None,
    )


def _find_fed_step(case: Case, what_if: WhatIf, now: Fixed, changed: LoopModel, doubt: Doubt) -> FedStep | None:
    """Return the step that the probe predicts after a change to loading; None if the probe does not apply.

    The probe ran beside equally busy workers. It does not apply to a change that gives workers less to do, nor to a
    step that another change has shortened.
    """
    if case.input_free is None or not what_if.feeds or now.touched or len(what_if.touches) > 1:
        return None
    return predict_fed_step(case.loading.loop, changed, case.input_free, doubt.step_ns)


def split_findings(
    case: Case, findings: Sequence[tuple[Rule, Finding]]
) -> tuple[list[tuple[Rule, Finding]], list[tuple[Rule, Finding]]]:
    """Split findings into those with a predictable step time, and loading changes that the simulation is too inaccurate
    to predict."""
    believed: list[tuple[Rule, Finding]] = []
    doubted: list[tuple[Rule, Finding]] = []
    is_near = limits.LEAST_CHECK_FRAC <= case.loading.loop.check <= limits.MOST_CHECK_FRAC
    for rule, finding in findings:
        feeds = finding.what_if is not None and finding.what_if.feeds
        (doubted if feeds and not is_near else believed).append((rule, finding))
    return believed, doubted


def say_misfit(case: Case) -> str:
    """Explain why the step time of a loading change is not predicted."""
    check = format_share(case.loading.loop.check)
    return f"Simulating the run as it is gives {check} of its measured step: too far off to predict a step time."


def rank_claims(case: Case, findings: Sequence[tuple[Rule, Finding]]) -> list[Claim]:
    """Apply the best fix to the model, judge the others again, and repeat while something is gained.

    A fix that gains enough alone, but nothing on top of the others, goes to the end as an alternative.
    """
    left = [(rule, finding) for rule, finding in findings if finding.what_if is not None]
    now = Fixed(case.loading.loop.model, case.steps.mean_ns, {})
    alone = {rule.id: make_claim(case, rule, finding, now) for rule, finding in left}
    chosen: list[Claim] = []
    while left:
        claims = [make_claim(case, rule, finding, now) for rule, finding in left]
        worth = [c for c in claims if is_worth_saying(case, c) and (chosen or not _is_muted(case, c.rule))]
        if not worth:
            break
        best = _choose(worth, now.step_ns)
        single = alone[best.rule.id]
        pays_alone = is_worth_saying(case, single) and not _is_muted(case, best.rule)
        shown = single if pays_alone else best
        chosen.append(replace(shown, after=chosen[-1].finding.text.fix if chosen else ""))
        now = _apply(now, best)
        left = [(rule, finding) for rule, finding in left if rule.knob != best.rule.knob]
    names = {claim.rule.id for claim in chosen}
    spare = [c for c in alone.values() if c.rule.id not in names and is_worth_saying(case, c)]
    spare = [c for c in spare if not _is_muted(case, c.rule)]
    spare.sort(key=lambda claim: claim.step_ns)
    first = chosen[0].finding.text.fix if chosen else ""
    return chosen + [replace(claim, instead_of=first) for claim in spare]


def _apply(now: Fixed, claim: Claim) -> Fixed:
    what_if = claim.finding.what_if
    assert what_if is not None
    touched = {part: max(now.touched.get(part, 0.0), part_ns) for part, part_ns in what_if.touches.items()}
    return Fixed(what_if.change(now.model), claim.step_ns, {**now.touched, **touched})


def _is_muted(case: Case, rule: Rule) -> bool:
    return rule.muted_when_input_bound and case.loading.wait_frac > limits.MUTE_WAIT_FRAC


def _choose(claims: Sequence[Claim], now_ns: float) -> Claim:
    best = max(now_ns - claim.step_ns for claim in claims)
    known = [claim for claim in claims if claim.rule.knob in _OF_SLOW_RANK]
    if any(now_ns - claim.step_ns >= limits.MUCH_OF_BEST_FRAC * best for claim in known):
        # Measured, and its wait lies in the communication: what is left of that is known afterwards.
        claims = [claim for claim in claims if claim.rule.knob != "communication"]
        best = max(now_ns - claim.step_ns for claim in claims)
    close = [claim for claim in claims if now_ns - claim.step_ns >= (1.0 - limits.CLOSE_FRAC) * best]
    return min(close, key=lambda claim: (claim.gain_order, claim.step_ns))


def write_suggestion(case: Case, claim: Claim) -> Suggestion:
    """Convert a claim to a suggestion for the pages and the report."""
    finding = claim.finding
    gain = (case.steps.mean_ns - claim.step_ns) / case.steps.mean_ns if case.steps.mean_ns else 0.0
    sure = is_sure(case, claim)
    severity: Severity = (
        "low"
        if claim.instead_of or gain < limits.LOW_GAIN_FRAC
        else "high"
        if sure and gain >= limits.HIGH_GAIN_FRAC and finding.tier != "R"
        else "medium"
    )
    said = [finding.text.advice, _say_basis(case, claim), _say_order(claim)]
    if not sure:
        said.append(_say_doubt(case))
    return replace(
        write_note(claim.rule, finding, severity),
        advice=" ".join(sentence for sentence in said if sentence),
        predicted_step_ns=claim.step_ns,
        predicted_low_ns=claim.low_ns,
        predicted_high_ns=claim.high_ns,
        settings=finding.settings,
        shortens=name_shortened(case, finding.what_if),
    )


def _say_basis(case: Case, claim: Claim) -> str:
    finding = claim.finding
    assumption = finding.text.assumption
    assumed = f"The prediction holds if {assumption}. " if assumption else ""
    if claim.is_probed and case.input_free is not None:
        assumed += (
            f"The step whose batch is ready was measured by the probe: {format_duration(case.input_free.step_ns)}. "
        )
    if finding.what_if is not None and finding.what_if.best is not None and "no time" not in assumption:
        assumed += "The lower end of the range is the step with nothing of it left. "
    if finding.basis:
        return assumed + finding.basis
    if finding.tier != "M":
        return assumed + _TIERS[finding.tier]
    check = format_share(case.loading.loop.check)
    return f"{assumed}{_TIERS['M']} Simulating the run as it is gives {check} of its measured step."


def _say_order(claim: Claim) -> str:
    if claim.instead_of:
        return f"An alternative to “{claim.instead_of}”: after that change it would save too little to matter."
    return f"Do it after “{claim.after}”." if claim.after else ""


def _say_doubt(case: Case) -> str:
    load = case.host.load
    if load is not None and case.host.others_frac >= MIN_GAIN_FRAC:
        used = f"other programs used {load.others:.1f} of {case.host.cores:g} cores"
        return f"Lower confidence: {used} while this ran, so the range is wide."
    if not case.loading.loop.trusted:
        return "Lower confidence: the simulation does not reproduce this run well, so the range is wide."
    return "Lower confidence: these steps vary much, so the range is wide."


def write_note(rule: Rule, finding: Finding, severity: Severity | None = None, why: str = "") -> Suggestion:
    """Convert a finding without a step time to a suggestion. `severity` replaces the rule's severity.

    Pages state that no step time is predicted; `why` adds the reason.
    """
    return Suggestion(
        rule=rule.id,
        title=finding.text.title,
        severity=severity or finding.severity,
        measured=finding.text.measured,
        threshold=finding.text.threshold,
        advice=f"{finding.text.advice} {why}".rstrip(),
        change=finding.text.change,
        predicted_step_ns=None,
        predicted_low_ns=None,
        predicted_high_ns=None,
        evidence=finding.evidence,
        fix=finding.text.fix,
        saved_per_step_frac=finding.saved_per_step_frac,
        least_step_ns=finding.least_step_ns,
    )
