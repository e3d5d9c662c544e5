"""What lies between a batch and its forward: copies to the device, and preparation."""

from __future__ import annotations

from profiler_server.diagnosis.limits.device import BLOCKING_FRAC, PAGEABLE_FRAC, PREPARE_FRAC
from profiler_server.diagnosis.what_if import predict_or, shorten_phases
from profiler_server.diagnosis.wording import write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge_pageable_copy(case: Case) -> Finding | None:
    """Batches are copied to the device from pageable memory."""
    loader, share = case.loading.loader, case.steps.share("h2d")
    if loader is None or loader.pin_memory or not case.device.is_used or share < PAGEABLE_FRAC:
        return None
    finding = Finding(
        title="Batches are copied from pageable memory",
        measured=f"{_say_copies(case)}; pin_memory is off.",
        threshold=f"At least {format_share(PAGEABLE_FRAC)} of the step is copying and preparation before the forward, on a device.",
        advice="Let the loader pin its batches, and copy them without blocking. Do not pin tensors by hand in the loop.",
        change=write_loader(loader, pin_memory=True) + f"\n{_UNBLOCKED}",
        fix="pin_memory=True with non_blocking copies",
        settings={"pin_memory": True},
        what_if=shorten_phases(case, ("h2d",), 0.7),
        gain_range=(0.5, 1.3),
    )
    return predict_or(case, finding, "h2d", "copies")


def _judge_blocking_copy(case: Case) -> Finding | None:
    """The thread that trains waits for each copy, although the memory is pinned."""
    loader, share = case.loading.loader, case.steps.share("h2d")
    if loader is None or not loader.pin_memory or not case.device.is_used or share < BLOCKING_FRAC:
        return None
    finding = Finding(
        title="The step waits for each copy to the device",
        measured=f"{_say_copies(case)}, with pinned memory.",
        threshold=f"At least {format_share(BLOCKING_FRAC)} of the step is copying and preparation before the forward.",
        advice="Copy without blocking; if the device still waits, copy the next batch on a separate stream while "
        "this one is being used.",
        change=_UNBLOCKED,
        fix="non_blocking=True",
        what_if=shorten_phases(case, ("h2d",), 0.7),
        gain_range=(0.4, 1.3),
    )
    return predict_or(case, finding, "h2d", "copies")


def _judge_serial_copy(case: Case) -> Finding | None:
    """Without a device, what stands between the batch and the forward is preparation on the training thread."""
    if case.device.entries or case.steps.share("h2d") < PREPARE_FRAC:
        return None
    return Finding(
        title="Batches are prepared on the training thread",
        measured=f"Preparing the batch, before the forward starts, takes {_say_spent(case)}.",
        threshold=f"At least {format_share(PREPARE_FRAC)} of the step.",
        advice="Move casts, normalisation and augmentation of the batch into the dataset or collate_fn, where workers "
        "do it while the step computes.",
        change="def collate(samples):\n    inputs, targets = default_collate(samples)\n"
        "    return prepare(inputs), targets  # was called in the loop",
        fix="preparing batches in the workers",
        what_if=shorten_phases(case, ("h2d",), 0.8),
        gain_range=(0.4, 1.25),
    )


_UNBLOCKED = "batch = batch.to(device, non_blocking=True)"


def _say_copies(case: Case) -> str:
    return f"Copies and preparation before the forward take {_say_spent(case)}"


def _say_spent(case: Case) -> str:
    spent, step = format_duration(case.steps.phases_ns["h2d"]), format_duration(case.steps.mean_ns)
    return f"{spent} of {step} ({format_share(case.steps.share('h2d'))})"


RULES = (
    Rule("pageable_copy", knob="copy", effort="flag", judge=_judge_pageable_copy),
    Rule("blocking_copy", knob="copy", effort="flag", judge=_judge_blocking_copy),
    Rule("serial_copy", knob="copy", effort="code", judge=_judge_serial_copy),
)
