"""Time between the known calls of a step: logging, metrics, Python of the user's, what answers a model that acts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profiler_server.diagnosis.limits import COLLECTED_FRAC, LARGE_PART_FRAC, LOGGED_FRAC, MIN_GAIN_NS, OUTSIDE_FRAC
from profiler_server.diagnosis.named import (
    bound_gain,
    find_dominant,
    find_in_phases,
    name_call,
    say_functions,
    spell_function,
)
from profiler_server.diagnosis.what_if import measure_garbage_outside, shorten_step
from profiler_server.diagnosis.wording import AROUND_ACTING, STEPS_PAGE, acts_in_steps
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Evidence
from profiler_server.facts.steps import NamedFunction, read_column
from profiler_server.format import form_plural, format_duration, format_share

_EVERY = 50
_LEAST_SAVED_FRAC = 0.25
_ALIKE_FRAC = 0.1
"""A median that is as near as this to the mean is not told beside it."""
_UNWATCHED = (
    " No input of the steps was seen: if this time is your input, wrap it, for batch in collector.watch(batches), "
    "and it counts as data wait."
)


@dataclass(frozen=True)
class _Remedy:
    """What to do about the time, and the share of it that goes; `named` and `code` are said of a function, with its call."""

    place: str
    advice: str
    change: str
    fix: str
    assumption: str
    saved_frac: float
    named: str
    code: str
    named_fix: str


def _choose_remedy(case: Case, longer: str, is_fed: bool) -> _Remedy:
    noun = case.steps.noun
    if longer == "gap" and acts_in_steps(case):
        return _Remedy(
            place=AROUND_ACTING,
            advice="Look at what the loop does with what the model says there, such as the step of a simulation: work on "
            "the whole batch in tensors rather than on one element after the other, or let other processes do it. What "
            f"the {noun} does not need, such as logging, can be done every n-th {noun}.",
            change="states, rewards = world.step(moves)  # on whole tensors, not element by element",
            fix="this work on whole tensors",
            assumption="this work took a tenth of its time",
            saved_frac=0.9,
            named="work on the whole batch in tensors rather than on one element after the other, let other processes "
            f"do it, or do it every n-th {noun} if the {noun} does not need its result.",
            code="{call}  # {place}: on whole tensors, not element by element",
            named_fix="{call} on whole tensors",
        )
    rarely = f"do that every n-th {noun} only, or in another thread."
    unfed = longer == "gap" and not is_fed
    return _Remedy(
        place="before the batch is asked for" if longer == "gap" else "after the parameter update",
        advice="Look at what the loop does there: logging, metrics, progress bars, copies of the weights. Do it every "
        "n-th step, or in another thread.",
        change=f"if step % {_EVERY} == 0:\n    log(loss.item())  # not in every step",
        fix="less work between the steps",
        assumption=f"this work is done in every {_EVERY}th {noun}, as in the code",
        saved_frac=1.0 - 1.0 / _EVERY,
        named=f"if it makes the batches, let workers of a DataLoader make them ahead; if not, {rarely}"
        if unfed
        else rarely,
        code=f"{{call}}  # {{place}}: ahead in workers if it makes the batches, else not in every {noun}"
        if unfed
        else f"if step % {_EVERY} == 0:  # not in every one\n    {{call}}  # {{place}}",
        named_fix=f"{{call}} made ahead, or not in every {noun}" if unfed else f"{{call}} not in every {noun}",
    )


def _has_a_rule(case: Case, outside_ns: float) -> bool:
    """Say whether another rule names most of this time: `logging_stall`, or `gc_pauses`."""
    logged = case.steps.logged
    if logged is not None and logged.step_ns >= LOGGED_FRAC * outside_ns:
        return True
    return measure_garbage_outside(case) >= COLLECTED_FRAC * outside_ns


def _judge(case: Case) -> Finding | None:
    if case.device.is_used:  # the host waits for the device in these phases; device times have to say why
        return None
    regular = case.steps.selection.regular
    outside = sum(read_column(case.steps.rows, f"{name}_ns")[regular] for name in ("gap", "tail"))
    typical = float(np.median(outside))
    # The collector of garbage runs where objects are made: what it takes of this time goes with the work that makes them.
    collected = np.minimum(read_column(case.steps.rows, "gc_ns")[regular], np.maximum(outside - typical, 0))
    share = typical / case.steps.mean_ns
    if share < OUTSIDE_FRAC:
        return None
    spent = case.steps.phases_ns["gap"] + case.steps.phases_ns["tail"]
    if _has_a_rule(case, spent):
        return None
    longer = "gap" if case.steps.regular_phases_ns["gap"] > case.steps.regular_phases_ns["tail"] else "tail"
    is_fed = bool(read_column(case.steps.rows, "fetches").any() or case.steps.regular_phases_ns["data_wait"])
    remedy = _choose_remedy(case, longer, is_fed)
    told = f"; half of the {form_plural(case.steps.noun)} spend at least {format_duration(typical)}"
    usual = "" if abs(typical / spent - 1.0) < _ALIKE_FRAC else told
    part = find_in_phases(case, "gap", "tail")
    found = Finding(
        title="Every step spends time outside of training",
        measured=f"{format_duration(spent)} of {format_duration(case.steps.mean_ns)} ({format_share(case.steps.share('gap', 'tail'))}) "
        "are spent outside of loading, preparing the batch, forward, backward and update, most of it "
        f"{remedy.place}{usual}.{say_functions(part, 'this time')}",
        threshold=f"In half of the {form_plural(case.steps.noun)} at least {format_share(OUTSIDE_FRAC)} of the mean {case.steps.noun}.",
        advice=remedy.advice + ("" if is_fed else _UNWATCHED),
        change=remedy.change,
        fix=remedy.fix,
        evidence=(STEPS_PAGE,),
        assumption=remedy.assumption,
        what_if=shorten_step(case, "outside", min(typical + float(collected.mean()), spent), remedy.saved_frac),
        gain_range=(_LEAST_SAVED_FRAC, 1.02),
    )
    culprit = find_dominant(part)
    found = found if culprit is None else _blame(case, found, culprit, remedy, spent)
    # In a step of a few milliseconds no gain is long enough to be promised, however large the share is.
    is_brief = (
        case.steps.phases_ns["forward"] > 0 and share >= LARGE_PART_FRAC and typical * _LEAST_SAVED_FRAC < MIN_GAIN_NS
    )
    return replace(found, otherwise=replace(found, what_if=None, severity="low")) if is_brief else found


def _blame(case: Case, found: Finding, culprit: NamedFunction, remedy: _Remedy, outside_ns: float) -> Finding:
    """Take away the function that is most of the time, instead of a part of all of it."""
    call = name_call(culprit)
    return replace(
        found,
        title=f"Every {case.steps.noun} spends time in {call}, outside of training",
        advice=f"Most of it is {spell_function(culprit)}: {remedy.named}"
        + (_UNWATCHED if found.advice.endswith(_UNWATCHED) else ""),
        change=remedy.code.format(call="…" if culprit.is_own_line else call, place=culprit.place),
        fix=remedy.named_fix.format(call=call),
        assumption=f"{call} took no time",
        evidence=(Evidence("steps", "", "The functions of each phase"),),
        what_if=shorten_step(case, "outside", outside_ns, culprit.share_frac),
        gain_range=bound_gain(culprit),
    )


RULE = Rule("python_gap", knob="outside", effort="code", judge=_judge, muted_when_input_bound=True)
