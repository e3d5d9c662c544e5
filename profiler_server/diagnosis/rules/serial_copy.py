"""Without a device, what stands between the batch and the forward is preparation on the training thread."""

from __future__ import annotations

from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule, shorten_step
from profiler_server.format import format_duration, format_share

_SHARE = 0.10


def _judge(case: Case) -> Finding | None:
    if case.manifest.devices or case.phase_frac("h2d") < _SHARE:
        return None
    work_ns = case.regular_phases_ns["h2d"]
    return Finding(
        title="Batches are prepared on the training thread",
        measured=f"Between receiving a batch and the forward pass {format_duration(work_ns)} of "
        f"{format_duration(case.step_ns)} ({format_share(case.phase_frac('h2d'))}).",
        threshold=f"More than {format_share(_SHARE)} of the step.",
        advice="Move casts, normalisation and augmentation of the batch into the dataset or collate_fn, where workers "
        "do it while the step computes.",
        change="def collate(samples):\n    inputs, targets = default_collate(samples)\n"
        "    return prepare(inputs), targets  # was called in the loop",
        fix="preparing batches in the workers",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(0.8 * work_ns, case.loop.fetches),
        gain_range=(0.4, 1.25),
    )


RULE = Rule("serial_copy", knob="copy", effort="code", judge=_judge)
