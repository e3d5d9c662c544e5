"""Time between the known calls of a step: logging, metrics, Python of the user's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector.format.steps import read_integers
from profiler_server.analysis.results import Evidence
from profiler_server.analysis.stacks.naming import NamedFunction
from profiler_server.analysis.stacks.words import spell_function
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import COLLECTED_FRAC, LOGGED_FRAC, OUTSIDE_FRAC
from profiler_server.diagnosis.named import bound_gain, find_dominant, find_in_phases, name_call, say_functions
from profiler_server.diagnosis.what_if import measure_garbage_outside, shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import form_plural, format_duration, format_share

_EVERY = 50
_UNWATCHED = (
    " No input of the steps was seen: if this time is your input, wrap it, for batch in collector.watch(batches), "
    "and it counts as data wait."
)


def _judge(case: Case) -> Finding | None:
    if case.device.is_used:  # the host waits for the device in these phases; device times have to say why
        return None
    regular = case.steps.selection.regular
    outside = sum(read_integers(case.steps.rows, f"{name}_ns")[regular] for name in ("gap", "tail"))
    typical = float(np.median(outside))
    # The collector of garbage runs where objects are made: what it takes of this time goes with the work that makes them.
    collected = np.minimum(read_integers(case.steps.rows, "gc_ns")[regular], np.maximum(outside - typical, 0))
    share = typical / case.steps.mean_ns
    if share < OUTSIDE_FRAC:
        return None
    spent = case.steps.phases_ns["gap"] + case.steps.phases_ns["tail"]
    if case.steps.logged is not None and case.steps.logged.step_ns >= LOGGED_FRAC * spent:
        return None  # it has a name: logging_stall
    if measure_garbage_outside(case) >= COLLECTED_FRAC * spent:
        return None  # gc_pauses
    longer = "gap" if case.steps.regular_phases_ns["gap"] > case.steps.regular_phases_ns["tail"] else "tail"
    is_fed = bool(read_integers(case.steps.rows, "fetches").any() or case.steps.regular_phases_ns["data_wait"])
    place = "before the batch is asked for" if longer == "gap" else "after the parameter update"
    told = format_duration(typical)
    usual = (
        "" if told == format_duration(spent) else f"; half of the {form_plural(case.steps.noun)} spend at least {told}"
    )
    part = find_in_phases(case, "gap", "tail")
    found = Finding(
        title="Every step spends time outside of training",
        measured=f"{format_duration(spent)} of {format_duration(case.steps.mean_ns)} ({format_share(case.steps.share('gap', 'tail'))}) "
        "are spent outside of loading, preparing the batch, forward, backward and update, most of it "
        f"{place}{usual}.{say_functions(part, 'this time')}",
        threshold=f"In half of the {form_plural(case.steps.noun)} at least {format_share(OUTSIDE_FRAC)} of the mean {case.steps.noun}.",
        advice="Look at what the loop does there: logging, metrics, progress bars, copies of the weights. Do it every "
        "n-th step, or in another thread." + ("" if is_fed else _UNWATCHED),
        change=f"if step % {_EVERY} == 0:\n    log(loss.item())  # not in every step",
        fix="less work between the steps",
        evidence=(STEPS_PAGE,),
        assumption=f"this work is done in every {_EVERY}th {case.steps.noun}, as in the code",
        what_if=shorten_step(case, "outside", min(typical + float(collected.mean()), spent), 1.0 - 1.0 / _EVERY),
        gain_range=(0.25, 1.02),
    )
    culprit = find_dominant(part)
    return found if culprit is None else _blame(case, found, culprit, spent)


def _blame(case: Case, found: Finding, culprit: NamedFunction, outside_ns: float) -> Finding:
    """Take away the function that is most of the time, instead of a part of all of it."""
    call = name_call(culprit)
    return replace(
        found,
        title=f"Every {case.steps.noun} spends time in {call}, outside of training",
        advice=f"Most of it is {spell_function(culprit)}: do that every n-th {case.steps.noun} only, or in another thread."
        + (_UNWATCHED if found.advice.endswith(_UNWATCHED) else ""),
        change=f"if step % 50 == 0:  # not in every one\n    {'…' if culprit.is_own_line else call}  # {culprit.place}",
        fix=f"{call} not in every {case.steps.noun}",
        assumption=f"{call} took no time",
        evidence=(Evidence("steps", "", "The functions of each phase"),),
        what_if=shorten_step(case, "outside", outside_ns, culprit.share_frac),
        gain_range=bound_gain(culprit),
    )


RULE = Rule("python_gap", knob="outside", effort="code", judge=_judge, muted_when_input_bound=True)
