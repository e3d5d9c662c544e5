"""The thread that trains waits for each copy, although the memory is pinned."""

from __future__ import annotations

from profiler_server.diagnosis.limits import BLOCKING_FRAC
from profiler_server.diagnosis.seen import predict_or
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    loader = case.loading.loader
    if loader is None or not loader.pin_memory or not case.device.is_used or case.steps.share("h2d") < BLOCKING_FRAC:
        return None
    copy_ns = case.steps.phases_ns["h2d"]
    finding = Finding(
        title="The step waits for each copy to the device",
        measured=f"Copies and preparation before the forward take {format_duration(copy_ns)} of "
        f"{format_duration(case.steps.mean_ns)} ({format_share(case.steps.share('h2d'))}), with pinned memory.",
        threshold=f"At least {format_share(BLOCKING_FRAC)} of the step is copying and preparation before the forward.",
        advice="Copy without blocking; if the device still waits, copy the next batch on a separate stream while "
        "this one is being used.",
        change="batch = batch.to(device, non_blocking=True)",
        fix="non_blocking=True",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "h2d", copy_ns, 0.7),
        gain_range=(0.4, 1.3),
    )
    return predict_or(case, finding, "h2d", "copies")


RULE = Rule("blocking_copy", knob="copy", effort="flag", judge=_judge)
