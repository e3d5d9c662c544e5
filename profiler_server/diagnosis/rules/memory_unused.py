"""Gradients are accumulated over small batches although a larger one would fit."""

from __future__ import annotations

from profiler_server.diagnosis.limits import SPARE_MEMORY_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | None:
    peak, parts = case.device.memory_peak_frac, case.steps.micro_batches
    if not case.device.is_used or peak is None or parts < 2 or 1.0 - peak < SPARE_MEMORY_FRAC:
        return None
    return Finding(
        title="Small batches are accumulated although memory is free",
        measured=f"Each step accumulates gradients of {parts} batches; at most {format_share(peak)} of the device's memory was held.",
        threshold=f"Gradients are accumulated, and at least {format_share(SPARE_MEMORY_FRAC)} of the memory is never held.",
        advice="Half as many batches of twice the size give the same update with half the launches (layers with batch "
        "statistics see larger batches).",
        change=f"batch_size *= 2\naccumulate = {max(parts // 2, 1)}  # was {parts}",
        fix="larger batches, fewer of them",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("memory_unused", knob="batch", effort="argument", judge=_judge, muted_when_input_bound=True)
