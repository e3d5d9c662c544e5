"""Batches are copied to the device from pageable memory."""

from __future__ import annotations

from profiler_server.diagnosis.limits import PAGEABLE_FRAC
from profiler_server.diagnosis.seen import predict_or
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE, write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    loader = case.loading.loader
    if loader is None or loader.pin_memory or not case.device.is_used:
        return None
    copy_ns = case.steps.phases_ns["h2d"]
    if case.steps.share("h2d") < PAGEABLE_FRAC:
        return None
    finding = Finding(
        title="Batches are copied from pageable memory",
        measured=f"Copies and preparation before the forward take {format_duration(copy_ns)} of "
        f"{format_duration(case.steps.mean_ns)} ({format_share(case.steps.share('h2d'))}); pin_memory is off.",
        threshold=f"At least {format_share(PAGEABLE_FRAC)} of the step is copying and preparation before the forward, on a device.",
        advice="Let the loader pin its batches, and copy them without blocking. Do not pin tensors by hand in the loop.",
        change=write_loader(loader, pin_memory=True) + "\nbatch = batch.to(device, non_blocking=True)",
        fix="pin_memory=True with non_blocking copies",
        settings={"pin_memory": True},
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "h2d", copy_ns, 0.7),
        gain_range=(0.5, 1.3),
    )
    return predict_or(case, finding, "h2d", "copies")


RULE = Rule("pageable_copy", knob="copy", effort="flag", judge=_judge)
