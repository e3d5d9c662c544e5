"""Kernels too small to fill the device, while most of its memory is free."""

from __future__ import annotations

from profiler_server.diagnosis.limits import SPARE_MEMORY_FRAC, UNFILLED_FRAC
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | None:
    summary, peak = case.device.summary, case.device.memory_peak_frac
    if not case.device.is_used or summary is None or peak is None:
        return None
    busy, filled = summary.utilization_frac, summary.sm_efficiency_frac
    if not busy or filled is None:
        return None
    unfilled = 1.0 - filled / busy
    if unfilled < UNFILLED_FRAC or 1.0 - peak < SPARE_MEMORY_FRAC:
        return None
    return Finding(
        title="The batch is small for this device",
        measured=f"While kernels run they leave {format_share(unfilled)} of the multiprocessors without work, and at most "
        f"{format_share(peak)} of the memory was held.",
        threshold=f"At least {format_share(UNFILLED_FRAC)} of the multiprocessors without work, and at least "
        f"{format_share(SPARE_MEMORY_FRAC)} of the memory free.",
        advice="A larger batch takes hardly longer here, so an epoch becomes shorter; the step itself does not. Check what the "
        "batch size does to your learning rate and your loss.",
        change="loader = DataLoader(dataset, batch_size=2 * batch_size)",
        fix="a larger batch",
        evidence=(OPERATORS_PAGE,),
    )


RULE = Rule("small_batch", knob="batch", effort="semantics", judge=_judge, muted_when_input_bound=True)
