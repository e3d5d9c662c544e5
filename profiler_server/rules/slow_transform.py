"""Transforms are what the loader spends its time on; the slowest is named."""

from __future__ import annotations

from profiler_server.diagnosis.case import STAGES_PAGE, Case, Finding, Rule, say_wait, scale_stages
from profiler_server.format import format_duration, format_share

_SHARE = 0.35


def _judge(case: Case) -> Finding | None:
    batches = case.batches
    if batches is None or not case.is_input_bound or case.bottleneck.stage != "transform":
        return None
    share = batches.share("transform")
    if share <= _SHARE:
        return None
    transform_ns = float(batches.stages_ns["transform"].mean())
    slowest = case.transforms[0] if case.transforms else None
    named = f"; {slowest[0]} alone is {format_share(slowest[1])} of it" if slowest else ""
    target = slowest[0] if slowest else "the transform"
    return Finding(
        title=f"Transforms are slow: {slowest[0]}" if slowest else "Transforms are slow",
        measured=f"{say_wait(case)} Transforms take {format_duration(transform_ns)} per batch, "
        f"{format_share(share)} of the loader's work{named}.",
        threshold=f"Input-bound, transforms are the longest stage and over {format_share(_SHARE)} of the work.",
        advice=f"Make {target} cheaper: do it once and store the result, do it on smaller data, or do it for the whole "
        "batch at once (torchvision v2 transforms take batches, also on the device). The prediction is for transforms "
        "in half of the time, the range from free to three quarters.",
        change="for images, _ in loader:\n    images = batch_transform(images.to(device))  # once per batch, not per sample",
        fix="transforms twice as fast",
        evidence=(STAGES_PAGE,),
        what_if=scale_stages(batches, ("transform",), 0.5),
        gain_range=(0.5, 1.6),
    )


RULE = Rule("slow_transform", knob="sample_work", effort="code", judge=_judge)
