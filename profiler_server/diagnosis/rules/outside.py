"""Time outside of forward, backward and update."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profiler_server.diagnosis.limits.facts import LARGE_PART_FRAC, MIN_GAIN_NS
from profiler_server.diagnosis.limits.thread import (
    ALIKE_FRAC,
    COLLECTED_FRAC,
    LEAST_OUTSIDE_SAVED,
    LOGGED_FRAC,
    LOGGING_FRAC,
    OUTSIDE_FRAC,
)
from profiler_server.diagnosis.what_if import bound_removal, measure_garbage_outside, shorten_step
from profiler_server.diagnosis.wording import (
    AROUND_ACTING,
    acts_in_steps,
    find_dominant,
    find_in_phases,
    name_call,
    say_functions,
    spell_function,
)
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Evidence
from profiler_server.facts.steps import NamedFunction, read_column
from profiler_server.format import form_plural, format_duration, format_share


def _judge_logging_stall(case: Case) -> Finding | None:
    """Logging holds the training thread up."""
    logged = case.steps.logged
    if logged is None:
        return None
    outside_ns = case.steps.phases_ns["gap"] + case.steps.phases_ns["tail"]
    spent_ns = min(logged.step_ns, outside_ns)
    share = spent_ns / case.steps.mean_ns
    if share < LOGGING_FRAC:
        return None
    return Finding(
        title=f"Logging holds up the steps: {logged.name}",
        measured=f"{logged.name} was called {logged.calls:,} times on the training thread, {format_duration(logged.step_ns)} "
        f"per {case.steps.noun} ({format_share(share)}); the longest call took {format_duration(logged.longest_ns)}."
        f"{say_functions(find_in_phases(case, 'gap', 'tail'), 'the time outside of training')}",
        threshold=f"At least {format_share(LOGGING_FRAC)} of the {case.steps.noun}, outside of forward, backward and update.",
        advice="Log every n-th step, keep figures as tensors until then, and let another thread write what is large: images, "
        "histograms, anything over a network.",
        change="if step % 50 == 0:\n    log(loss.item())  # not in every step",
        fix="logging every n-th step",
        tier="A",
        what_if=shorten_step(case, "outside", spent_ns, 0.9),
        gain_range=(0.8, 1.1),
    )


_EVERY = 50
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


def _judge_python_gap(case: Case) -> Finding | None:
    """Time between the known calls of a step: logging, metrics, Python of the user's, what answers a model that acts."""
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
    usual = "" if abs(typical / spent - 1.0) < ALIKE_FRAC else told
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
        assumption=remedy.assumption,
        what_if=shorten_step(case, "outside", min(typical + float(collected.mean()), spent), remedy.saved_frac),
        gain_range=(LEAST_OUTSIDE_SAVED, 1.02),
    )
    culprit = find_dominant(part)
    found = found if culprit is None else _blame(case, found, culprit, remedy, spent)
    # In a step of a few milliseconds no gain is long enough to be promised, however large the share is.
    is_brief = (
        case.steps.phases_ns["forward"] > 0 and share >= LARGE_PART_FRAC and typical * LEAST_OUTSIDE_SAVED < MIN_GAIN_NS
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
        gain_range=bound_removal(culprit),
    )


RULES = (
    Rule("logging_stall", knob="outside", effort="code", judge=_judge_logging_stall),
    Rule("python_gap", knob="outside", effort="code", judge=_judge_python_gap, muted_when_input_bound=True),
)
