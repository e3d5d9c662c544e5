"""Predict the step time after each suggested change, and order the changes so that no gain is counted twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from collector.estimating.model import LoopModel
from profiler_server.analysis.data.prediction import (
    find_doubt,
    predict_step,
    predict_without_loading,
)
from profiler_server.diagnosis.knobs import PROMISED
from profiler_server.diagnosis.limits import verdict as limits
from profiler_server.diagnosis.limits.facts import LARGE_PART_FRAC, MIN_GAIN_FRAC, MIN_GAIN_NS
from profiler_server.diagnosis.what_if import bound_by_job, find_min_gain_ns, name_shortened
from profiler_server.facts.case import Case, Claim, Finding, Rule, WhatIf
from profiler_server.facts.results import Suggestion
from profiler_server.format import format_share

_OF_SLOW_RANK = frozenset({"straggler", "rank_loader"})
Severity = Literal["high", "medium", "low", "info"]


def is_worth_saying(case: Case, claim: Claim) -> bool:
    """Return whether even a poor version of the fix gains enough, and the gain exceeds its uncertainty.

    A fix with an uncertain gain is also worth saying in two cases: the step waits for a known stage, or the fix
    shortens a large share of the step. To say nothing would be wrong there.
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
    """Return whether the gain of a claim is still large enough after its uncertainty is subtracted."""
    return claim.sure_gain_ns >= find_min_gain_ns(case)


@dataclass(frozen=True)
class Fixed:
    """The loop after some changes: its model, its predicted mean step, and the most ns that they save of each piece."""

    model: LoopModel
    step_ns: float
    touched: Mapping[str, float]

    def find_floor_ns(self, case: Case, what_if: WhatIf) -> float:
        """Return the part of the mean step, in ns, that neither the earlier changes nor the new change can shorten."""
        touched = {**self.touched}
        for part, part_ns in what_if.touches.items():
            touched[part] = max(touched.get(part, 0.0), part_ns)
        return max(case.steps.mean_ns - sum(touched.values()), 0.0)


@dataclass(frozen=True)
class _Prediction:
    """The mean step after a change, in ns. `low_ns` to `high_ns` is the range for another run's mean step, and
    `gain_doubt_ns` is the uncertainty of the gain."""

    step_ns: float
    low_ns: float
    high_ns: float
    gain_doubt_ns: float


def make_claim(case: Case, rule: Rule, finding: Finding, now: Fixed) -> Claim:
    """Return the finding with its predicted step, on top of the changes in `now`.

    The step and its range assume the extent of the change that the finding states, so the range covers only the
    uncertainty of measurement and model. Step and range are shown if this uncertainty is a small part of the saving.
    The order of claims follows the gain of the usual extent.
    """
    what_if, now_ns = finding.what_if, now.step_ns
    assert what_if is not None
    usual = _predict(case, finding, what_if.change, now)
    stated = usual if what_if.full is None else _predict(case, finding, what_if.full, now)
    doubt_ns = max(stated.high_ns - stated.step_ns, stated.step_ns - stated.low_ns)
    gain_ns = now_ns - usual.step_ns
    return Claim(
        rule=rule,
        finding=finding,
        step_ns=stated.step_ns,
        low_ns=stated.low_ns,
        high_ns=stated.high_ns,
        is_shown=finding.doubt_frac is not None and doubt_ns <= limits.MOST_DOUBT_FRAC * (now_ns - stated.step_ns) + 1,
        usual_ns=usual.step_ns,
        least_gain_ns=gain_ns * finding.least_frac,
        sure_gain_ns=gain_ns - usual.gain_doubt_ns,
        feeds=what_if.feeds,
    )


def _predict(case: Case, finding: Finding, change: Callable[[LoopModel], LoopModel], now: Fixed) -> _Prediction:
    """Return the mean step after a change on top of those in `now`. No step is below the time that no change can
    shorten.

    The low end of the range may be below this time, because the rest of the thread's work may speed up. The low end is
    never zero.
    """
    what_if, now_ns, loop = finding.what_if, now.step_ns, case.loading.loop
    assert what_if is not None
    changed = change(now.model)
    floor_ns = min(now.find_floor_ns(case, what_if), now_ns)
    doubt = find_doubt(loop, now.model, changed)
    gain = now_ns - min(max(predict_step(loop, changed), floor_ns), now_ns)
    gain = bound_by_job(case, what_if, gain)
    step = now_ns - gain
    # The loss of the ranks is measured, no matter which simulation this rank's loader has.
    half = math.hypot(doubt.chance_ns if what_if.is_of_job else doubt.step_ns, (finding.doubt_frac or 0.0) * gain)
    low, high = step - half, step + half
    if what_if.feeds:  # no change can gain more than a step without any loading
        low = max(low, min(step, predict_without_loading(loop, changed)) - doubt.chance_ns)
    eased_ns = min(limits.EASED_FRAC * step / now_ns, limits.MOST_DOUBT_FRAC) * gain if what_if.eases and gain else 0.0
    low = now_ns - bound_by_job(case, what_if, now_ns - min(low, step - eased_ns))
    low = max(low, floor_ns * (1.0 - eased_ns / max(step, 1.0)), limits.LEAST_LOW_FRAC * step)
    return _Prediction(step, min(low, step), min(high, now_ns), doubt.gain_ns)


def split_findings(
    case: Case, findings: Sequence[tuple[Rule, Finding]]
) -> tuple[list[tuple[Rule, Finding]], list[tuple[Rule, Finding]]]:
    """Return two lists: first all findings whose step time can be predicted or that predict none, then the changes to
    the loading for which the simulation is too inaccurate."""
    believed: list[tuple[Rule, Finding]] = []
    doubted: list[tuple[Rule, Finding]] = []
    is_near = limits.LEAST_CHECK_FRAC <= case.loading.loop.check <= limits.MOST_CHECK_FRAC
    for rule, finding in findings:
        feeds = finding.what_if is not None and finding.what_if.feeds
        (doubted if feeds and not is_near else believed).append((rule, finding))
    return believed, doubted


def say_misfit(case: Case) -> str:
    """Return a sentence on why the step time after a change to the loading is not predicted."""
    check = case.loading.loop.check
    known = "explains only" if check < 1.0 else "gives"
    return f"No step time is predicted. Our model of the loader {known} {format_share(check)} of this step."


def rank_claims(case: Case, findings: Sequence[tuple[Rule, Finding]]) -> list[Claim]:
    """Return the claims in order: apply the best fix to the model, predict the other fixes on top of it, and repeat.

    A fix that gains enough by itself, but nothing on top of the others, goes to the end as an alternative.
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
    spare.sort(key=lambda claim: claim.usual_ns)
    first = chosen[0].finding.text.fix if chosen else ""
    return chosen + [replace(claim, instead_of=first) for claim in spare]


def _apply(now: Fixed, claim: Claim) -> Fixed:
    what_if = claim.finding.what_if
    assert what_if is not None
    touched = {part: max(now.touched.get(part, 0.0), part_ns) for part, part_ns in what_if.touches.items()}
    return Fixed(what_if.change(now.model), claim.usual_ns, {**now.touched, **touched})


def _is_muted(case: Case, rule: Rule) -> bool:
    return rule.muted_when_input_bound and case.loading.wait_frac > limits.MUTE_WAIT_FRAC


def _choose(claims: Sequence[Claim], now_ns: float) -> Claim:
    best = max(now_ns - claim.usual_ns for claim in claims)
    known = [claim for claim in claims if claim.rule.knob in _OF_SLOW_RANK]
    if any(now_ns - claim.usual_ns >= limits.MUCH_OF_BEST_FRAC * best for claim in known):
        # The gain from the slow rank is measured, and its wait is a part of the communication. The rest of the
        # communication is known only after that change.
        claims = [claim for claim in claims if claim.rule.knob != "communication"]
        best = max(now_ns - claim.usual_ns for claim in claims)
    close = [claim for claim in claims if now_ns - claim.usual_ns >= (1.0 - limits.CLOSE_FRAC) * best]
    return min(close, key=lambda claim: (claim.gain_order, claim.usual_ns))


def write_suggestion(case: Case, claim: Claim) -> Suggestion:
    """Return a claim as a suggestion for the pages and the report, with its severity."""
    finding = claim.finding
    gain = (case.steps.mean_ns - claim.usual_ns) / case.steps.mean_ns if case.steps.mean_ns else 0.0
    severity: Severity = (
        "low"
        if claim.instead_of or gain < limits.LOW_GAIN_FRAC
        else "high"
        if claim.is_shown and is_sure(case, claim) and gain >= limits.HIGH_GAIN_FRAC
        else "medium"
    )
    basis = _say_basis(case, claim) if claim.is_shown else _say_doubt(case, claim)
    is_predicted = claim.is_shown and not finding.text.removed
    said = [finding.text.advice, basis, _say_order(claim)]
    least_ns, condition = _find_least_step(case, claim)
    return replace(
        write_note(claim.rule, finding, severity),
        advice=" ".join(sentence for sentence in said if sentence),
        predicted_step_ns=claim.step_ns if is_predicted else None,
        predicted_low_ns=claim.low_ns if is_predicted else None,
        predicted_high_ns=claim.high_ns if is_predicted else None,
        least_step_ns=least_ns,
        settings=finding.settings,
        shortens=name_shortened(case, finding.what_if),
        condition=condition,
    )


def _find_least_step(case: Case, claim: Claim) -> tuple[float | None, str]:
    """Return the least step that a change can lead to, in ns, and what holds then; None if it is not worth stating.

    A change whose gain is unsure has a bound if it feeds the loop, which can save no more than all loading costs it (the
    wait for data, and the processors that workers take), or if it makes a known work cheaper. The bound of another
    change is far below what it reaches.
    """
    text, what_if = claim.finding.text, claim.finding.what_if
    if claim.is_shown or what_if is None:
        return (claim.low_ns if text.removed else None), text.condition
    if not (text.removed or what_if.feeds):
        return None, ""
    most_ns = min(sum(what_if.touches.values()), case.steps.mean_ns)
    loop = case.loading.loop
    if what_if.feeds and loop.trusted:
        most_ns = min(most_ns, max(case.steps.mean_ns - predict_without_loading(loop, loop.model), 0.0))
    condition = "making batches took no time and no processor" if what_if.feeds else text.condition
    return case.steps.mean_ns - bound_by_job(case, what_if, most_ns), condition


def _say_basis(case: Case, claim: Claim) -> str:
    finding = claim.finding
    if finding.basis:
        return finding.basis
    if not claim.feeds:
        return "Computed from the measured times."
    check = format_share(case.loading.loop.check)
    return (
        f"Simulated with the recorded batch times. Without a change the simulation gives {check} of the measured step."
    )


def _say_order(claim: Claim) -> str:
    if claim.instead_of:
        return f"An alternative to “{claim.instead_of}”: after that change it would save too little to matter."
    return f"Do it after “{claim.after}”." if claim.after else ""


def _say_doubt(case: Case, claim: Claim) -> str:
    """Return sentences on why no step time is predicted, and on how the user can measure it."""
    load = case.host.load
    if (claim.finding.doubt_frac or math.inf) > limits.MOST_DOUBT_FRAC:
        why = "How much it saves is not known beforehand."
    elif load is not None and case.host.others_frac >= MIN_GAIN_FRAC:
        why = f"Unsure how much it saves: other programs used {load.others:.1f} of {case.host.cores:g} cores meanwhile."
    elif not case.loading.loop.trusted:
        why = "Unsure how much it saves: the simulation does not reproduce this run well."
    else:
        why = "Unsure how much it saves: these steps vary too much for a saving of this size."
    return f"{why} `stepscope run --try` measures it." if claim.rule.id in PROMISED and not case.is_imported else why


def write_note(rule: Rule, finding: Finding, severity: Severity | None = None, why: str = "") -> Suggestion:
    """Return a finding as a suggestion without a predicted step time. `severity` replaces that of the finding.

    Pages state that no step time is predicted; `why` adds the reason to the advice.
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
