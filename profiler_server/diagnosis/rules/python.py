"""Python inside of forward, backward and update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC
from profiler_server.diagnosis.limits.thread import (
    LEAST_OWN_SAMPLES,
    LEAST_PYTHON_SAVED,
    LEAST_ROWS_SAVED,
    LOOPED_FRAC,
    ONE_FUNCTION_FRAC,
    OPERATORS_IN_MODULES_FRAC,
    OUTSIDE_FRAC,
    PYTHON_SAVED,
)
from profiler_server.diagnosis.what_if import measure_garbage_outside, shorten_step
from profiler_server.diagnosis.wording import OPERATORS_PAGE, find_dominant, find_in_phases, name_call, spell_function
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention, Evidence
from profiler_server.facts.steps import COMPUTING, LoopedRows, NamedFunction, OwnWork, read_column
from profiler_server.format import format_count, format_duration, format_share


@dataclass(frozen=True)
class _Part:
    """Such work in one phase."""

    phase: str
    work: OwnWork
    low_ns: float
    usual_ns: float
    high_ns: float

    @property
    def times_ns(self) -> tuple[float, float, float]:
        return self.low_ns, self.usual_ns, self.high_ns


def _judge_python_in_step(case: Case) -> Finding | Abstention | None:
    """Python of the user's between forward, backward and update: pairs that are mined, losses and metrics in loops."""
    if case.device.is_used or case.stacks is None:  # with a device, its times have to say what the host holds up
        return None
    found = {phase: work for phase in COMPUTING if (work := case.stacks.own_work[phase]) is not None}
    found = {phase: work for phase, work in found.items() if work.samples >= LEAST_OWN_SAMPLES}
    if not case.steps.operator_fracs:
        sampled_ns = sum(work.low_frac * case.steps.phases_ns[phase] for phase, work in found.items())
        return _ask_for_window() if sampled_ns >= OUTSIDE_FRAC * case.steps.mean_ns else None
    parts = [_measure(case, phase, work) for phase, work in found.items()]
    low_ns, usual_ns = sum(part.low_ns for part in parts), sum(part.usual_ns for part in parts)
    is_much = usual_ns >= OUTSIDE_FRAC * case.steps.mean_ns and low_ns >= MIN_GAIN_FRAC * case.steps.mean_ns
    return _write(case, parts) if is_much else None


def _ask_for_window() -> Abstention:
    missing = "how much of the Python between the modules is spent in operators"
    return Abstention("python_in_step", missing, 'Record with Profiler(window="auto").')


def _measure(case: Case, phase: str, work: OwnWork) -> _Part:
    """Take the operators off that the work calls by itself: none to all of them, and usually those of no module.

    Collections of garbage that run within it are another rule's.
    """
    spent_ns = case.steps.phases_ns[phase] * _leave_garbage(case)
    operators, inside = case.steps.operator_fracs.get(phase, 0.0), 1.0 - work.share_frac
    called = min(max(operators - OPERATORS_IN_MODULES_FRAC * inside, 0.0), work.share_frac)
    usual = work.share_frac - called
    low = usual - math.hypot(work.share_frac - work.low_frac, usual - max(work.share_frac - operators, 0.0))
    high = min(work.high_frac, 1.0 - operators)
    return _Part(phase, work, max(low, 0.0) * spent_ns, usual * spent_ns, max(high, usual) * spent_ns)


def _leave_garbage(case: Case) -> float:
    """Return the part of the computing phases in which no garbage is collected."""
    spent_ns = sum(case.steps.phases_ns[phase] for phase in COMPUTING)
    collected_ns = float(read_column(case.steps.rows, "gc_ns")[case.steps.selection.kept].mean())
    inside_ns = max(collected_ns - measure_garbage_outside(case), 0.0)
    return max(1.0 - inside_ns / spent_ns, 0.0) if spent_ns else 0.0


def _write(case: Case, parts: Sequence[_Part]) -> Finding:
    low_ns, usual_ns, high_ns = (sum(values) for values in zip(*(part.times_ns for part in parts), strict=True))
    most = max(parts, key=lambda part: part.usual_ns)
    culprit = next((entry for entry in most.work.functions if entry.share_frac >= ONE_FUNCTION_FRAC), None)
    call, noun = name_call(culprit) if culprit is not None else "this work", case.steps.noun
    touches = {part.phase: part.high_ns for part in parts}
    found = Finding(
        title=f"Every {noun} waits for Python code{f': {call}' if culprit is not None else ''}",
        measured=f"Python code outside of modules and operators takes about {format_duration(usual_ns)} of "
        f"{format_duration(case.steps.mean_ns)} ({format_share(usual_ns / case.steps.mean_ns)}; "
        f"{format_duration(low_ns)} to {format_duration(high_ns)}), most of it in {PHASE_LABELS[most.phase].lower()}: "
        f"{_say_samples(most.work)}.",
        threshold=f"At least {format_share(OUTSIDE_FRAC)} of the {noun}, and surely {format_share(MIN_GAIN_FRAC)}.",
        advice=f"Nothing else of the {noun} goes on meanwhile. Work on the whole batch in tensors rather than on one "
        "element after the other (sorting, indexing, a table of distances), leave to the workers of the DataLoader what "
        f"does not need the model, and compute metrics every n-th {noun} only.",
        change=_write_code(most.work.functions, culprit is not None),
        fix=f"{call} on whole tensors" if culprit is not None else "less Python inside of the step",
        evidence=(Evidence("steps", "", "The functions of each phase"),),
        assumption=f"{call} took a tenth of its time",
        what_if=replace(shorten_step(case, "python", usual_ns, PYTHON_SAVED), touches=touches),
        gain_range=(LEAST_PYTHON_SAVED * low_ns / (PYTHON_SAVED * usual_ns), high_ns / (PYTHON_SAVED * usual_ns)),
    )
    return replace(found, otherwise=replace(found, what_if=None, severity="low"))


def _say_samples(work: OwnWork) -> str:
    named = " and ".join(spell_function(entry) for entry in work.functions)
    share = f"{format_share(work.share_frac)} of its samples ({work.samples:,})"
    return f"{named}, {share}" if named else share


def _write_code(functions: Sequence[NamedFunction], is_one: bool) -> str:
    first = functions[0] if functions else None
    if first is not None and first.caller:  # a call of a library, such as of a metric
        return f"if step % 50 == 0:  # not in every one\n    {name_call(first)}  # {first.place}"
    if first is None or not is_one:
        return "loss = compute(outputs, labels)  # on whole tensors: no loop over their elements"
    call = "…" if first.is_own_line else name_call(first)
    return f"{call}  # {first.place}: on whole tensors, not element by element"


_MOST_NAMED = 3


def _judge_rows_in_loop(case: Case) -> Finding | None:
    """A loop of Python over samples or other rows, each with small operators of its own."""
    looped, step_ns = case.steps.looped, case.steps.mean_ns
    if (
        looped is None or looped.holds_batches or case.device.is_used
    ):  # a device's times have to say what the host holds up
        return None
    least_ns, usual_ns, _ = _measure_rows(looped)
    is_much = usual_ns >= LOOPED_FRAC * step_ns and least_ns >= MIN_GAIN_FRAC * step_ns
    return _write_rows(case, looped) if is_much else None


def _measure_rows(looped: LoopedRows) -> tuple[float, float, float]:
    """Return what one call for all rows saves of the step: at least, usually and at most."""
    low_ns = sum(part.low_ns for part in looped.phases)
    high_ns = sum(part.high_ns for part in looped.phases)
    return LEAST_ROWS_SAVED * low_ns, (low_ns + high_ns) / 2.0, high_ns


def _write_rows(case: Case, looped: LoopedRows) -> Finding:
    least_ns, usual_ns, high_ns = _measure_rows(looped)
    step_ns, noun = case.steps.mean_ns, case.steps.noun
    culprit = find_dominant(find_in_phases(case, "forward"))
    where = f": {name_call(culprit)}" if culprit is not None else ""
    touches = {part.phase: part.high_ns for part in looped.phases if part.high_ns}
    what_if = replace(shorten_step(case, "python", usual_ns, 1.0), touches=touches)
    found = Finding(
        title=f"Every {noun} handles {format_count(looped.rows)} rows one by one{where}",
        measured=f"Rows are taken out of a tensor one after the other, and a {noun} calls {format_count(round(looped.calls))} operators "
        f"for them ({', '.join(looped.names[:_MOST_NAMED])}). What all these calls cost before they compute is about "
        f"{format_duration(usual_ns)} of {format_duration(step_ns)} ({format_share(usual_ns / step_ns)}).",
        threshold=f"At least {format_share(LOOPED_FRAC)} of the {noun}, and surely {format_share(MIN_GAIN_FRAC)}.",
        advice="Give whole tensors to modules, losses and metrics: they take all rows in one call. Pad rows of different lengths "
        "and mask what was padded; compare pairs with broadcasting or torch.cdist; take gradients of single rows with torch.func.vmap. If a row needs the result of the one before, a loop is "
        "right, and torch.compile or a fused layer such as torch.nn.GRU makes it shorter.",
        change="outputs = module(rows)  # was: torch.stack([module(row) for row in rows])",
        fix=f"one call for all {format_count(looped.rows)} rows",
        evidence=(OPERATORS_PAGE,),
        assumption=f"one call handled all {format_count(looped.rows)} rows" if looped.is_free else "",
        what_if=what_if if looped.is_free else None,
        gain_range=(least_ns / usual_ns, high_ns / usual_ns),
        severity="info" if looped.is_free else "low",
    )
    return replace(found, otherwise=replace(found, what_if=None, severity="low"))


RULES = (
    Rule("python_in_step", knob="python", effort="code", judge=_judge_python_in_step, muted_when_input_bound=True),
    Rule("rows_in_loop", knob="python", effort="code", judge=_judge_rows_in_loop, muted_when_input_bound=True),
)
