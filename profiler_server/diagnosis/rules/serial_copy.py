"""Without a device, what stands between the batch and the forward is preparation on the training thread."""

from __future__ import annotations

from profiler_server.diagnosis.limits import PREPARE_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    if case.device.entries or case.steps.share("h2d") < PREPARE_FRAC:
        return None
    work_ns = case.steps.phases_ns["h2d"]
    return Finding(
        title="Batches are prepared on the training thread",
        measured=f"Preparing the batch, before the forward starts, takes {format_duration(work_ns)} of "
        f"{format_duration(case.steps.mean_ns)} ({format_share(case.steps.share('h2d'))}).",
        threshold=f"At least {format_share(PREPARE_FRAC)} of the step.",
        advice="Move casts, normalisation and augmentation of the batch into the dataset or collate_fn, where workers "
        "do it while the step computes.",
        change="def collate(samples):\n    inputs, targets = default_collate(samples)\n"
        "    return prepare(inputs), targets  # was called in the loop",
        fix="preparing batches in the workers",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "h2d", work_ns, 0.8),
        gain_range=(0.4, 1.25),
    )


RULE = Rule("serial_copy", knob="copy", effort="code", judge=_judge)
