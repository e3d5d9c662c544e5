"""The thread that trains waits for each copy, although the memory is pinned."""

from __future__ import annotations

from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule, shorten_step
from profiler_server.format import format_duration, format_share

_SHARE = 0.08


def _judge(case: Case) -> Finding | None:
    loader = case.loader
    if loader is None or not loader.pin_memory or not case.has_accelerator or case.phase_frac("h2d") < _SHARE:
        return None
    copy_ns = case.regular_phases_ns["h2d"]
    return Finding(
        title="The step waits for each copy to the device",
        measured=f"Copies and preparation before the forward take {format_duration(copy_ns)} of "
        f"{format_duration(case.step_ns)} ({format_share(case.phase_frac('h2d'))}), with pinned memory.",
        threshold=f"More than {format_share(_SHARE)} of the step before the forward.",
        advice="Copy without blocking; if the device still waits, copy the next batch on a stream of its own while "
        "this one is computed.",
        change="batch = batch.to(device, non_blocking=True)",
        fix="non_blocking=True",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(0.7 * copy_ns, case.loop.fetches),
        gain_range=(0.4, 1.3),
    )


RULE = Rule("blocking_copy", knob="copy", effort="flag", judge=_judge)
