"""Batches are copied to the device from pageable memory."""

from __future__ import annotations

from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule, shorten_step, write_loader
from profiler_server.format import format_duration, format_share

_SHARE = 0.05


def _judge(case: Case) -> Finding | None:
    loader = case.loader
    if loader is None or loader.pin_memory or not case.has_accelerator:
        return None
    copy_ns = case.regular_phases_ns["h2d"]
    if case.phase_frac("h2d") < _SHARE:
        return None
    return Finding(
        title="Batches are copied from pageable memory",
        measured=f"Copies and preparation before the forward take {format_duration(copy_ns)} of "
        f"{format_duration(case.step_ns)} ({format_share(case.phase_frac('h2d'))}); pin_memory is off.",
        threshold=f"More than {format_share(_SHARE)} of the step before the forward, on a CUDA device.",
        advice="Let the loader pin its batches, and copy them without blocking. Do not pin tensors by hand in the loop.",
        change=write_loader(loader, pin_memory=True) + "\nbatch = batch.to(device, non_blocking=True)",
        fix="pin_memory=True with non_blocking copies",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(0.7 * copy_ns, case.loop.fetches),
        gain_range=(0.5, 1.3),
    )


RULE = Rule("pageable_copy", knob="copy", effort="flag", judge=_judge)
