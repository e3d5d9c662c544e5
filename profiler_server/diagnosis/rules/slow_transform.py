"""Transforms are what the loader spends its time on; the slowest is named."""

from __future__ import annotations

from profiler_server.diagnosis.named import blame_function, find_dominant, find_in_stage, say_functions
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    batches = case.loading.batches
    if batches is None or not case.loading.is_input_bound or case.loading.bottleneck.stage != "transform":
        return None
    if case.loading.is_slow_for_few:
        return None  # only some samples take long
    share = batches.share("transform")
    transform_ns = float(batches.stages_ns["transform"].mean())
    slowest = case.loading.transforms[0] if case.loading.transforms else None
    part = find_in_stage(case, "transform")
    culprit = find_dominant(part)
    named = f"; {slowest[0]} alone is {format_share(slowest[1])} of it" if slowest and culprit is None else ""
    target = slowest[0] if slowest else "the transform"
    cheaper = f"Make {target} cheaper: do it once and store the result, do it" if culprit is None else "Or do it"
    found = Finding(
        title=f"Transforms are slow: {slowest[0]}" if slowest else "Transforms are slow",
        measured=f"{say_wait(case)} Transforms take {format_duration(transform_ns)} per batch, "
        f"{format_share(share)} of the loader's work{named}.{say_functions(part, 'transforms')}",
        threshold=f"{say_input_limit(case)}, and transforms are the longest stage.",
        advice=f"{cheaper} on smaller data, or do it for the whole batch at once (torchvision v2 transforms take batches, "
        "also on the device).",
        change="for images, _ in loader:\n    images = batch_transform(images.to(device))  # once per batch, not per sample",
        fix="transforms in half of their time",
        evidence=(STAGES_PAGE,),
        assumption="transforms took half as long",
        tier="M",
        what_if=scale_stages(case, batches, ("transform",), 0.5),
        gain_range=(0.85, 1.1),
    )
    return blame_function(case, batches, found, part)


RULE = Rule("slow_transform", knob="sample_work", effort="code", judge=_judge, stage="transform")
