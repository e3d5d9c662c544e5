"""Limits of the device: late launches, copies to it, unused memory, and patterns of a recorded window."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_server.diagnosis.limits import device as limits
from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC, QUEUED_FRAC
from profiler_server.diagnosis.what_if import (
    TIMELINE,
    look_for,
    predict,
    predict_or,
    say_examples,
    say_idle_share,
    shorten_phases,
    shorten_step,
)
from profiler_server.facts.case import Abstention, Case, Effort, Finding, Rule
from profiler_server.words.phrases import OPERATORS_PAGE, describe, find_in_phases, say_functions, write_loader


def _judge_launch_bound(case: Case) -> Finding | Abstention | None:
    """The device runs out of work because the host cannot launch kernels fast enough."""
    if not case.device.is_used:
        return None
    device = case.device.shares
    if device is None:
        imported = "Trace with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
        how = imported if case.is_imported else 'Record with Profiler(window="auto").'
        return Abstention("launch_bound", "when kernels ran on the device", how)
    wait_frac = case.loading.wait_frac
    launches = max(0.0, device.unfed - wait_frac)  # a wait for data is no launch
    host = launches / device.idle if device.idle else 0.0
    if device.idle < limits.DEVICE_IDLE_FRAC or host <= limits.LAUNCH_IDLE_FRAC or not case.device.is_dispatching:
        return None
    unfed_ns = launches * (1.0 - wait_frac) * case.loading.loop.regular_step_ns
    left_out = ", the wait for data left out" if wait_frac else ""
    finding = Finding(
        describe(case, "launch_bound", idle=say_idle_share(case), launches=launches, left_out=left_out),
        evidence=(OPERATORS_PAGE,),
        what_if=shorten_step(case, "launches", unfed_ns, 0.7),
        least_frac=0.3,
    )
    return predict_or(case, finding, "launches", "launches")


def _judge_launch_thread_starved(case: Case) -> Finding | None:
    """The thread that launches kernels queues for a processor while the device idles."""
    load, shares = case.host.load, case.device.shares
    queued = load.queued_frac if load is not None else None
    if not case.device.is_used or shares is None or queued is None:
        return None
    if queued < QUEUED_FRAC or shares.idle < limits.DEVICE_IDLE_FRAC:
        return None
    lost_ns = min(queued, shares.unfed) * case.loading.loop.own_ns
    return Finding(
        describe(case, "launch_thread_starved", idle=say_idle_share(case)),
        what_if=shorten_step(case, "queue", lost_ns, 0.7),
        least_frac=0.3,
    )


def _judge_pageable_copy(case: Case) -> Finding | None:
    """Batches are copied to the device from pageable memory."""
    return _judge_copy(case, "pageable_copy", limits.PAGEABLE_FRAC, is_pinned=False)


def _judge_blocking_copy(case: Case) -> Finding | None:
    """The thread that trains waits for each copy, although the memory is pinned."""
    return _judge_copy(case, "blocking_copy", limits.BLOCKING_FRAC, is_pinned=True)


def _judge_copy(case: Case, entry: str, least_frac: float, is_pinned: bool) -> Finding | None:
    loader, share = case.loading.loader, case.steps.share("h2d")
    if loader is None or loader.pin_memory is not is_pinned or not case.device.is_used or share < least_frac:
        return None
    finding = Finding(
        describe(case, entry, share=share, call=write_loader(loader, pin_memory=True)),
        settings={} if is_pinned else {"pin_memory": True},
        what_if=shorten_phases(case, ("h2d",), 0.7),
        least_frac=0.4 if is_pinned else 0.5,
    )
    return predict_or(case, finding, "h2d", "copies")


def _judge_serial_copy(case: Case) -> Finding | None:
    """On a CPU, the recorded thread spends much time on each batch after receiving it and before the forward."""
    share = case.steps.share("h2d")
    if case.device.entries or share < limits.PREPARE_FRAC:
        return None
    what_if = shorten_phases(case, ("h2d",), 1.0)
    entry = "serial_copy" if case.loading.loader is not None else "serial_copy.own"
    functions = say_functions(find_in_phases(case, "h2d"), "this time")
    text = describe(case, entry, share=share, functions=functions)
    return Finding(text, what_if=what_if, doubt_frac=0.1, least_frac=0.32)


def _judge_memory_unused(case: Case) -> Finding | None:
    """Gradients are accumulated over small batches although a larger one would fit."""
    peak, parts = case.device.memory_peak_frac, case.steps.micro_batches
    if not case.device.is_used or peak is None or parts < 2 or 1.0 - peak < limits.SPARE_MEMORY_FRAC:
        return None
    return Finding(describe(case, "memory_unused", parts=parts, peak=peak, fewer=max(parts // 2, 1)))


def _judge_small_batch(case: Case) -> Finding | None:
    """Kernels too small to fill the device, while most of its memory is free."""
    summary, peak = case.device.summary, case.device.memory_peak_frac
    if not case.device.is_used or summary is None or peak is None:
        return None
    busy, filled = summary.utilization_frac, summary.sm_efficiency_frac
    if not busy or filled is None:
        return None
    unfilled = 1.0 - filled / busy
    if unfilled < limits.UNFILLED_FRAC or 1.0 - peak < limits.SPARE_MEMORY_FRAC:
        return None
    return Finding(describe(case, "small_batch", unfilled=unfilled, peak=peak), evidence=(OPERATORS_PAGE,))


def _judge_needless_checkpointing(case: Case) -> Finding | Abstention | None:
    """The backward computes forwards again to save memory that is not short."""
    seen = look_for(case, "needless_checkpointing", "checkpointing")
    if seen is None or isinstance(seen, Abstention):
        return seen
    peak = case.device.memory_peak_frac
    if peak is None:
        return Abstention("needless_checkpointing", "how much memory the device held", "Record or trace with memory.")
    if 1.0 - peak < limits.SPARE_MEMORY_FRAC or seen.gain is None:
        return None
    finding = Finding(describe(case, "needless_checkpointing", seen=seen, peak=peak), evidence=(TIMELINE,))
    return predict(case, finding, "kernels", seen.gain)


@dataclass(frozen=True)
class _Seen:
    """A pattern that a replayed window may show. `part` is the piece of the step that is shorter without the
    pattern."""

    id: str
    knob: str
    part: str
    about: str
    sighting: str = ""
    effort: Effort = "code"

    def judge(self, case: Case) -> Finding | Abstention | None:
        seen = look_for(case, self.id, self.sighting)
        if seen is None or isinstance(seen, Abstention):
            return seen
        if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
            return None
        text = describe(case, f"window.{self.id}", seen=seen, examples=say_examples(seen))
        return predict(case, Finding(text, evidence=(TIMELINE,)), self.part, seen.gain)


_WINDOW = (
    _Seen(
        "alloc_retries",
        "allocator",
        "allocator",
        "The allocator asks the driver for memory while steps run.",
        sighting="allocator_calls",
        effort="flag",
    ),
    _Seen("built_on_cpu", "built", "copies", "Tensors made on the host and then copied, which the device could make."),
    _Seen("cast_before_copy", "cast", "copies", "Batches are made wider on the host before they are copied."),
    _Seen(
        "channels_last",
        "layout",
        "kernels",
        "Convolutions copy their images into another memory layout and back.",
        sighting="layout_copies",
    ),
    _Seen(
        "empty_cache_in_loop",
        "empty_cache",
        "allocator",
        "`torch.cuda.empty_cache()` in the training loop.",
        sighting="emptied_cache",
    ),
    _Seen("explicit_synchronize", "explicit_sync", "waits", "`torch.cuda.synchronize()` in the training loop."),
    _Seen("large_d2h", "results", "copies", "Large results are brought to the host in each step."),
    _Seen(
        "misaligned_shapes",
        "shapes",
        "kernels",
        "16-bit products with sizes that tensor cores cannot take in whole groups.",
    ),
    _Seen(
        "per_parameter_loops",
        "loops",
        "loops",
        "Python loops over parameters outside of the update: norms, averages of weights, zeroing.",
    ),
    _Seen(
        "sdpa_unused",
        "attention",
        "kernels",
        "Attention made of single operators, where one kernel could do it.",
        sighting="attention_by_hand",
    ),
    _Seen("small_copies", "copy_count", "copies", "Many small copies to the device in each step."),
    _Seen(
        "sync_points",
        "sync",
        "waits",
        "Operators that make the host wait for the device: `.item()`, `.cpu()`, a tensor in an `if`.",
    ),
    _Seen(
        "unfused_pointwise",
        "launch",
        "kernels",
        "Chains of elementwise kernels that a compiler would join.",
        effort="flag",
    ),
)

RULES = (
    Rule("launch_bound", knob="launch", effort="flag", judge=_judge_launch_bound, muted_when_input_bound=True),
    Rule("launch_thread_starved", knob="threads", effort="argument", judge=_judge_launch_thread_starved),
    Rule("pageable_copy", knob="copy", effort="flag", judge=_judge_pageable_copy),
    Rule("blocking_copy", knob="copy", effort="flag", judge=_judge_blocking_copy),
    Rule("serial_copy", knob="copy", effort="code", judge=_judge_serial_copy),
    Rule("memory_unused", knob="batch", effort="argument", judge=_judge_memory_unused, muted_when_input_bound=True),
    Rule("small_batch", knob="batch", effort="semantics", judge=_judge_small_batch, muted_when_input_bound=True),
    Rule(
        "needless_checkpointing",
        knob="checkpointing",
        effort="argument",
        judge=_judge_needless_checkpointing,
        muted_when_input_bound=True,
    ),
    *(
        Rule(seen.id, seen.knob, seen.effort, seen.judge, muted_when_input_bound=True, about=seen.about)
        for seen in _WINDOW
    ),
)
