"""Work whose result is never used: gradients that no update uses, padding, and results that were already computed
before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from collector.format.phases import IN_MODEL
from profiler_server.diagnosis.limits import needless as limits
from profiler_server.diagnosis.what_if import also, look_for, shorten_kernels, shorten_phases
from profiler_server.facts.case import STEPS_PAGE, Abstention, Case, Finding, Hotspot, LineWork, Rule
from profiler_server.facts.steps import ModelCalls
from profiler_server.words.phrases import OPERATORS_PAGE, describe

_DOUBTS: Mapping[str, tuple[float | None, float]] = {"losses": (0.2, 0.6), "inputs": (0.2, 0.6), "parts": (None, 0.3)}
"""The doubt about the saving of one backward instead of several, and the share that a poor version saves. How much is left
of a Jacobian depends on the way in which it is taken."""
_LOADER = "DataLoader"
"""What stands for a module where the batches of a loader were examined."""


def _judge_needless_grad(case: Case) -> Finding | Abstention | None:
    """Gradients that nobody uses: inference that records its operators, and gradients that no update takes."""
    if case.steps.phases_ns["backward"] or case.steps.phases_ns["optimizer"]:
        return _judge_training(case)
    seen = look_for(case, "needless_grad", "recorded_gradients")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.figures["share"] < limits.RECORDED_FRAC:
        return None
    return Finding(describe(case, "needless_grad", seen=seen), evidence=(OPERATORS_PAGE,))


def _judge_training(case: Case) -> Finding | None:
    """Judge gradients that backward computes and no update uses: of a teacher, or of the other model of a pair."""
    unused, backward_frac = case.unused, case.steps.share("backward")
    if unused is None or not backward_frac:
        return None
    unheld = unused.parameters - unused.held
    share = unused.backward_frac
    if share is None:
        share = unheld / max(unheld + unused.updated, 1)
        if share < limits.UNUSED_GRADIENTS_FRAC:
            return None
    elif share * backward_frac < limits.NEEDLESS_STEP_FRAC:
        return None
    is_measured = unused.backward_frac is not None
    text = describe(
        case,
        "needless_grad.untrained" if unheld > unused.held else "needless_grad.thrown",
        unused=unused.parameters,
        share=share,
        backward_frac=backward_frac,
        where=_name_unused_line(case, share) if is_measured else "",
        how="" if is_measured else ", if that takes as long for each parameter",
    )
    what_if = shorten_phases(case, ("backward",), share)
    if is_measured and unheld > unused.held and not case.device.is_used:
        what_if = also(what_if, shorten_phases(case, ("forward",), limits.UNRECORDED_FRAC * share))
    return Finding(
        text,
        evidence=(OPERATORS_PAGE,) if is_measured else (STEPS_PAGE,),
        what_if=what_if,
        doubt_frac=0.1 if is_measured else None,
        least_frac=0.8 if is_measured else 0.4,
    )


def _name_unused_line(case: Case, share: float) -> str:
    """Return a sentence that names the line of the forward whose backward is mostly unused; "" if none is known."""
    most = _find_most(case, lambda work: work.unused_frac, limits.UNUSED_LINE_FRAC * share)
    return f" Most of it leads back to the forward of {_name_line(most)}." if most is not None else ""


def _find_most(case: Case, measure: Callable[[LineWork], float], least: float) -> Hotspot | None:
    """Return the user's line of which the measure is largest; None if no line has at least `least`."""
    spots = case.lines.hotspots if case.lines is not None else ()
    known = [(measure(spot.work), spot) for spot in spots if spot.work is not None]
    value, most = max(known, key=lambda entry: entry[0], default=(0.0, None))
    return most if value >= least else None


def _name_line(spot: Hotspot) -> str:
    where = spot.name if spot.is_of_loop else f"{spot.name} at {spot.place}"
    return f"{where}, `{spot.lines[0].text}`" if spot.lines[0].text else where


def _judge_spare(case: Case) -> Finding | None:
    """Operators compute rows that are dropped: a selection comes after them, and could come before."""
    spare, in_model = case.spare, case.steps.share(*IN_MODEL)
    if spare is None or spare.time_ns is None:
        return None
    share = min((1.0 - spare.used_frac) * spare.time_ns / case.steps.mean_ns, in_model)
    if share < limits.SPARE_FRAC:
        return None
    most = _find_most(case, lambda work: work.spare_frac, limits.REPEATED_LINE_FRAC)
    if most is not None and most.whole_frac >= limits.LAUNCHING_FRAC:
        return None
    text = describe(
        case,
        "late_selection",
        name=most.name if most is not None else "The forward",
        line=_name_line(most) if most is not None else "The forward",
        used=spare.used_frac,
        share=share,
    )
    what_if = shorten_phases(case, IN_MODEL, share / in_model)
    subject = most.subject if most is not None else ""
    return Finding(text, what_if=what_if, doubt_frac=0.2, least_frac=0.6, subject=subject)


def _judge_padding(case: Case) -> Finding | None:
    """Much of each batch is padding, and the model computes with it as with all else."""
    padded = [
        _join_lines(found, case.calls)
        for found in case.calls
        if found.looks >= limits.LEAST_LOOKS and 2 * found.padded > found.calls
    ]
    # What a loader pads costs nothing where the model does not get it.
    of_models = [found for found in padded if found.model != _LOADER]
    worst = min(of_models or padded, key=lambda found: found.useful_frac, default=None)
    if worst is None or 1.0 - worst.useful_frac < limits.PADDED_FRAC:
        return None
    linear, square = worst.wide_fracs or (1.0, 0.0)
    is_fixed = worst.longest_frac < limits.LONGEST_FRAC
    kept = worst.longest_frac if is_fixed else worst.useful_frac
    computes = case.device.shares.compute if case.device.is_used and case.device.shares is not None else None
    in_model = case.steps.share(*IN_MODEL) if computes is None else computes
    if (linear + square) * (1.0 - worst.useful_frac) * in_model < limits.NEEDLESS_STEP_FRAC:
        return None
    saved_frac = linear * (1.0 - kept) + square * (1.0 - kept**2)
    text = describe(
        case,
        "padding_waste" if is_fixed else "padding_waste.uneven",
        model=worst.model,
        place=_name_place(case, worst.place),
        useful=worst.useful_frac,
        padding=1.0 - worst.useful_frac,
        longest=worst.longest_frac,
        width=f", {worst.width} positions wide" if worst.width else "",
        looks=worst.looks,
        computing="Forward and backward" if computes is None else "The kernels",
        in_model=in_model,
    )
    what_if = shorten_phases(case, IN_MODEL, saved_frac) if computes is None else shorten_kernels(case, 1.0, saved_frac)
    if worst.wide_fracs is None or case.device.is_used:
        # On a device, the launches of smaller kernels take as long as before.
        return Finding(text, what_if=what_if, doubt_frac=None, least_frac=0.5 if is_fixed else 0.3)
    if is_fixed:
        return Finding(text, what_if=what_if, doubt_frac=0.15, least_frac=0.75)
    # The change needs another way of drawing batches.
    return Finding(text, what_if=what_if, doubt_frac=0.25, least_frac=0.3)


def _join_lines(found: ModelCalls, calls: Sequence[ModelCalls]) -> ModelCalls:
    """Return the calls of a module at a line with the shares of all positions that the module gets at all lines."""
    same = [other for other in calls if other.model == found.model and other.positions]
    whole = sum(other.positions for other in same)
    if not found.positions or found.model == _LOADER or len(same) == 1:
        return found
    return replace(
        found,
        useful_frac=sum(other.useful_frac * other.positions for other in same) / whole,
        longest_frac=sum(other.longest_frac * other.positions for other in same) / whole,
        width=found.width if all(other.width == found.width for other in same) else 0,
        wide_fracs=found.wide_fracs if all(other.width == found.width for other in same) else None,
    )


def _name_place(case: Case, place: str) -> str:
    """Return a place as file:line, followed by the text of the line if known."""
    spots = case.lines.hotspots if case.lines is not None else ()
    lines = {f"{spot.file.rpartition('/')[2]}:{line.number}": line.text for spot in spots for line in spot.lines}
    return f"{place}, `{lines[place]}`" if lines.get(place) else place


def _judge_repeated_call(case: Case) -> Finding | None:
    """A module computes what it has computed before: in the same step, or in an earlier one."""
    judged = [_judge_operators(case), _judge_backwards(case), *(_judge_calls(case, calls) for calls in case.calls)]
    found = [entry for entry in judged if entry is not None]
    return max(found, key=lambda entry: entry[0], default=(0.0, None))[1]


def _judge_operators(case: Case) -> tuple[float, Finding] | None:
    """Judge operators of the forward that compute what an earlier one has computed in the same step, from the same
    inputs."""
    in_model = case.steps.share(*IN_MODEL)
    spent_ns = (case.repeated.time_ns if case.repeated is not None else None) or 0.0
    share = min(spent_ns / case.steps.mean_ns, in_model)
    if share < limits.REPEATED_FRAC:
        return None
    most = _find_most(case, lambda work: work.again_frac, limits.REPEATED_LINE_FRAC)
    text = describe(
        case,
        "repeated_call.operators" if most is None else "repeated_call.line",
        name=most.name if most is not None else "",
        line=_name_line(most) if most is not None else "",
        share=share,
    )
    # What is not kept for backward leaves memory to the rest of the step.
    what_if = replace(shorten_phases(case, IN_MODEL, share / in_model), eases=not case.device.is_used)
    subject = most.subject if most is not None else ""
    return share * case.steps.mean_ns, Finding(text, what_if=what_if, doubt_frac=0.2, least_frac=0.6, subject=subject)


def _judge_backwards(case: Case) -> tuple[float, Finding] | None:
    """Judge backwards that run through the same nodes of a graph, and might be one."""
    swept, in_model = case.swept, case.steps.share(*IN_MODEL)
    share = min((swept.time_ns or 0.0) / case.steps.mean_ns, in_model) if swept is not None else 0.0
    if swept is None or share < limits.REPEATED_FRAC:
        return None
    text = describe(
        case,
        f"repeated_call.{swept.kind}",
        backwards=swept.backwards,
        place=_name_place(case, swept.place),
        share=share,
    )
    doubt_frac, least_frac = _DOUBTS[swept.kind]
    what_if = shorten_phases(case, IN_MODEL, share / in_model)
    return share * case.steps.mean_ns, Finding(text, what_if=what_if, doubt_frac=doubt_frac, least_frac=least_frac)


def _judge_calls(case: Case, calls: ModelCalls) -> tuple[float, Finding] | None:
    is_again = calls.again >= limits.OFTEN_FRAC * calls.looks
    forward_ns = case.steps.phases_ns["forward"]
    if calls.looks < limits.LEAST_REPEATS or not (is_again or calls.known >= limits.LEAST_KNOWN) or not forward_ns:
        return None
    spent_ns = min((calls.again_ns if is_again else calls.known_ns) / calls.looks, forward_ns)
    if spent_ns < limits.REPEATED_FRAC * case.steps.mean_ns:
        return None
    text = describe(
        case,
        "repeated_call" if is_again else "repeated_call.known",
        model=calls.model,
        place=_name_place(case, calls.place),
        spent_ns=spent_ns,
        share=spent_ns / case.steps.mean_ns,
        looks=calls.looks,
        known=calls.known,
        compared=calls.compared,
    )
    what_if = shorten_phases(case, ("forward",), spent_ns / forward_ns)
    return spent_ns, Finding(text, what_if=what_if, doubt_frac=0.2, least_frac=0.6)


RULES = (
    Rule("needless_grad", knob="grad", effort="flag", judge=_judge_needless_grad),
    Rule("late_selection", knob="selection", effort="code", judge=_judge_spare),
    Rule("padding_waste", knob="padding", effort="code", judge=_judge_padding),
    Rule("repeated_call", knob="repeated", effort="code", judge=_judge_repeated_call),
)
