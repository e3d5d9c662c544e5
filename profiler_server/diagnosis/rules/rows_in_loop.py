"""A loop of Python over samples or other rows, each with small operators of its own."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits import LOOPED_FRAC, MIN_GAIN_FRAC
from profiler_server.diagnosis.named import find_dominant, find_in_phases, name_call
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import LoopedRows
from profiler_server.format import format_count, format_duration, format_share

_LEAST_SAVED = 0.7
"""Of what surely goes: rows of different lengths are padded, and what is done for some rows only is done for all."""
_MOST_NAMED = 3


def _judge(case: Case) -> Finding | None:
    looped, step_ns = case.steps.looped, case.steps.mean_ns
    if (
        looped is None or looped.holds_batches or case.device.is_used
    ):  # a device's times have to say what the host holds up
        return None
    least_ns, usual_ns, _ = _measure(looped)
    is_much = usual_ns >= LOOPED_FRAC * step_ns and least_ns >= MIN_GAIN_FRAC * step_ns
    return _write(case, looped) if is_much else None


def _measure(looped: LoopedRows) -> tuple[float, float, float]:
    """Return what one call for all rows saves of the step: at least, usually and at most."""
    low_ns = sum(part.low_ns for part in looped.phases)
    high_ns = sum(part.high_ns for part in looped.phases)
    return _LEAST_SAVED * low_ns, (low_ns + high_ns) / 2.0, high_ns


def _write(case: Case, looped: LoopedRows) -> Finding:
    least_ns, usual_ns, high_ns = _measure(looped)
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


RULE = Rule("rows_in_loop", knob="python", effort="code", judge=_judge, muted_when_input_bound=True)
