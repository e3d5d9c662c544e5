"""Moving batches that are made: to the training process, and into pinned memory."""

from __future__ import annotations

from profiler_server.diagnosis.limits.facts import COPY_BYTES_PER_NS
from profiler_server.diagnosis.limits.loading import (
    FREEING_NS,
    HIGH_WAIT_FRAC,
    LARGE_BATCH_BYTES,
    SENDING_WAIT_FRAC,
    TENSORS_SEND_NS,
)
from profiler_server.diagnosis.what_if import also, scale_stages, shorten_step
from profiler_server.diagnosis.wording import (
    DATA_PAGE,
    STAGES_PAGE,
    find_dominant,
    find_in_phases,
    say_input_limit,
    say_wait,
)
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import BatchTimes
from profiler_server.format import format_bytes, format_duration, format_share


def _judge_ipc_bound(case: Case) -> Finding | None:
    """Moving batches out of the workers takes longer than making them, or holds up the step when they are ready."""
    batches = case.loading.batches
    if not case.loading.is_input_bound or case.loading.bottleneck.stage != "send":
        return None
    if batches is not None:
        slowest = max(batches.stages_ns, key=lambda stage: float(batches.stages_ns[stage].mean()))
        if slowest == "send" and _is_to_blame(case, float(batches.stages_ns["send"].mean())):
            return _blame_sending(case, batches)
    # For a small batch, or without a free processor, another way of sharing costs more than it saves.
    large = batches is not None and batches.bytes >= LARGE_BATCH_BYTES
    return _blame_handover(case) if large and not case.lacks_processors else None


def _is_to_blame(case: Case, send_ns: float) -> bool:
    """Say whether sending explains the wait: batches are late, or so large in pickling that receiving them is as well."""
    loading = case.loading
    return (
        loading.bottleneck.cause != "receiving" or send_ns * loading.loop.fetches >= SENDING_WAIT_FRAC * loading.wait_ns
    )


def _blame_sending(case: Case, batches: BatchTimes) -> Finding:
    share = batches.share("send")
    send_ns = float(batches.stages_ns["send"].mean())
    tensors_ns = TENSORS_SEND_NS + batches.bytes / COPY_BYTES_PER_NS
    left, freeing_ns = min(tensors_ns / send_ns, 1.0), _find_freeing(case)
    freed = f", and freeing the batch before {format_duration(freeing_ns)}" if freeing_ns >= FREEING_NS else ""
    what_if = scale_stages(case, batches, ("send",), left)
    return Finding(
        title="Moving batches between processes is slow",
        measured=f"{say_wait(case)} Sending takes {format_duration(send_ns)} per batch, "
        f"{format_share(share)} of the workers' work{freed}.",
        threshold=f"{say_input_limit(case)}, and sending is the longest stage.",
        advice="Return few large tensors per sample (they are moved by shared memory) rather than lists, dicts of "
        "numbers or strings, which are pickled; send uint8 and convert after the copy.",
        change="return torch.from_numpy(image), label  # uint8; convert on the device: images.float().div_(255)",
        fix="sending tensors, not objects",
        evidence=(STAGES_PAGE,),
        assumption=f"sending took {format_duration(min(tensors_ns, send_ns))}, as it does for tensors of as many bytes",
        tier="M",
        what_if=also(what_if, shorten_step(case, "h2d", freeing_ns, 1.0 - left)) if freed else what_if,
        gain_range=(0.6, 1.1),
    )


def _find_freeing(case: Case) -> float:
    """Return how long the step takes to free the batch before: objects that were unpickled go one by one, where the loop
    takes its next batch over, which is a line of its own that is in no operator.
    """
    culprit = find_dominant(find_in_phases(case, "h2d"))
    if case.device.is_used or culprit is None or not culprit.is_own_line:
        return 0.0
    free = 1.0 - case.steps.operator_fracs.get("h2d", 0.0)
    return case.steps.phases_ns["h2d"] * culprit.share_frac * free


def _blame_handover(case: Case) -> Finding:
    return Finding(
        title="Receiving finished batches is slow",
        measured=f"{say_wait(case)} The next batch was ready in {format_share(1.0 - case.loading.not_ready_frac)} of the requests: the "
        "step waits to receive its tensors from the worker.",
        threshold=f"{say_input_limit(case)}, the next batch is ready, and it has at least {format_bytes(LARGE_BATCH_BYTES)}.",
        advice="Each tensor of a batch is opened from shared memory by a file that the worker passes on, so many small "
        "tensors take long, and a worker that is busy answers late. Return fewer tensors per batch, or share memory by "
        "name.",
        change='torch.multiprocessing.set_sharing_strategy("file_system")  # before the DataLoader is made',
        fix="sharing memory by name",
        evidence=(STAGES_PAGE,),
        severity="low" if case.loading.wait_frac >= HIGH_WAIT_FRAC else "info",  # each batch costs a millisecond or so
    )


def _judge_pin_thread(case: Case) -> Finding | None:
    """The thread that pins memory is the limit: its input is full and its output is empty."""
    if case.loading.bottleneck.stage != "pin" or not case.loading.is_input_bound:
        return None
    return Finding(
        title="Pinning memory is slower than loading",
        measured=f"{say_wait(case)} {case.loading.bottleneck.reason}",
        threshold="The queue before the pin-memory thread holds batches, and the one after it lacks the next batch.",
        advice="Send fewer and larger tensors per batch, uint8 instead of float32, or pin only what is copied.",
        change="return torch.from_numpy(image), label  # uint8; convert on the device: images.float().div_(255)",
        fix="smaller batches to pin",
        evidence=(DATA_PAGE,),
        severity="medium",
    )


RULES = (
    Rule("ipc_bound", knob="send", effort="code", judge=_judge_ipc_bound, stage="send"),
    Rule("pin_thread", knob="pin", effort="code", judge=_judge_pin_thread),
)
