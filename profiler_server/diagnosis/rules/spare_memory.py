"""Memory of the device that is free, and could be used."""

from __future__ import annotations

from profiler_server.diagnosis.limits.device import SPARE_MEMORY_FRAC, UNFILLED_FRAC
from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC
from profiler_server.diagnosis.what_if import TIMELINE, look_for, predict
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge_memory_unused(case: Case) -> Finding | None:
    """Gradients are accumulated over small batches although a larger one would fit."""
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
    )


def _judge_small_batch(case: Case) -> Finding | None:
    """Kernels too small to fill the device, while most of its memory is free."""
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


def _judge_needless_checkpointing(case: Case) -> Finding | Abstention | None:
    """The backward computes forwards again to save memory that is not short."""
    seen = look_for(case, "needless_checkpointing", "checkpointing")
    if seen is None or isinstance(seen, Abstention):
        return seen
    peak = case.device.memory_peak_frac
    if peak is None:
        return Abstention("needless_checkpointing", "how much memory the device held", "Record or trace with memory.")
    if 1.0 - peak < SPARE_MEMORY_FRAC or seen.gain is None:
        return None
    finding = Finding(
        title="Activations are computed twice although memory is free",
        measured=f"{seen.count:.0f} checkpointed blocks per step, {format_duration(seen.spent_ns)} of backward with their forwards; "
        f"at most {format_share(peak)} of the device's memory was held.",
        threshold=f"At least {format_share(SPARE_MEMORY_FRAC)} of the memory is never held, and without the second forwards the "
        f"replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Checkpoint fewer blocks, or none: keeping the results of layers takes memory that is free here. Watch the peak.",
        change="use_checkpoint = index % 2 == 0  # every other block; then none",
        fix="no checkpointing",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "kernels", seen.gain)


RULES = (
    Rule("memory_unused", knob="batch", effort="argument", judge=_judge_memory_unused, muted_when_input_bound=True),
    Rule("small_batch", knob="batch", effort="semantics", judge=_judge_small_batch, muted_when_input_bound=True),
    Rule(
        "needless_checkpointing",
        knob="checkpointing",
        effort="argument",
        judge=_judge_needless_checkpointing,
        muted_when_input_bound=True,
    ),
)
