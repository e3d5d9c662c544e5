"""Time between the known calls of a step: logging, metrics, Python of the user's."""

from __future__ import annotations

import numpy as np

from collector.format.steps import read_integers
from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule, shorten_step
from profiler_server.format import format_duration, format_share

_SHARE = 0.10


def _judge(case: Case) -> Finding | None:
    if case.has_accelerator:  # the host waits for the device in these phases; device times have to say why
        return None
    regular = case.selection.regular
    outside = sum(read_integers(case.train, f"{name}_ns")[regular] for name in ("gap", "tail"))
    typical = float(np.median(outside))
    share = typical / case.step_ns
    if share < _SHARE:
        return None
    longer = "gap" if case.regular_phases_ns["gap"] > case.regular_phases_ns["tail"] else "tail"
    place = "before the batch is asked for" if longer == "gap" else "after the parameter update"
    return Finding(
        title="Every step spends time outside of training",
        measured=f"{format_duration(typical)} of {format_duration(case.step_ns)} ({format_share(share)}) of a usual step "
        f"pass outside of loading, forward, backward and update, most of it {place}.",
        threshold=f"More than {format_share(_SHARE)} of the usual step.",
        advice="Look at what the loop does there: logging, metrics, progress bars, copies of the weights. Do it every "
        "n-th step, or in another thread.",
        change="if step % 50 == 0:\n    log(loss.item())  # not in every step",
        fix="less work between the steps",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(0.8 * typical, case.loop.fetches),
        gain_range=(0.3, 1.25),
    )


RULE = Rule("python_gap", knob="outside", effort="code", judge=_judge, muted_when_input_bound=True)
