"""What ranks send each other."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits.facts import MIN_ACCUMULATED, MIN_GAIN_FRAC
from profiler_server.diagnosis.limits.ranks import (
    COPIED_BYTES_PER_S,
    COPIES_FRAC,
    EXPOSED_FRAC,
    GLOO_FRAC,
    UNSYNCED_FRAC,
    USUAL_BUCKET_BYTES,
)
from profiler_server.diagnosis.what_if import TIMELINE, look_for, predict, shorten_step
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.facts.machine import Gain, Sighting
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share

_OF_COPIES = (
    "Start the reduction earlier and in larger pieces (bucket_cap_mb), reduce in half precision, or reduce less often by "
    "accumulating gradients under no_sync().",
    "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n\n"
    "model = DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)\n"
    "model.register_comm_hook(None, default_hooks.fp16_compress_hook)",
)
_OF_SHARDS = (
    "Gather and reduce in half precision, gather the parameters of the next block earlier "
    "(set_modules_to_forward_prefetch), shard larger blocks, or keep a small model whole on each rank "
    "(DistributedDataParallel): then only gradients are exchanged.",
    "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n\n"
    "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)\n"
    "fully_shard(block, mp_policy=policy)  # for each block, then for the model",
)
"""Advice and change, where each rank has the whole model, and where its parameters are sharded."""


def _judge_exposed_all_reduce(case: Case) -> Finding | None:
    """Communication that nothing hides, after waiting for a slow rank is taken out."""
    # In a pipeline this is mostly waiting for other stages.
    if case.ranks.world_size < 2 or case.ranks.is_pipeline:
        return None
    own_ns, transfer_ns = case.steps.phases_ns["communication"], case.transfer_ns
    share = transfer_ns / case.steps.mean_ns
    if share < EXPOSED_FRAC or case.needless_syncs_frac or case.has_odd_buckets:  # these have rules of their own
        return None
    rest = (
        f"{format_duration(transfer_ns)} ({format_share(share)}) remain after subtracting the wait for slower ranks."
        if case.ranks.peers
        else "how much of that is waiting for slower ranks is unknown, because no other rank was recorded here."
    )
    return Finding(
        title="Communication does not overlap with computing",
        measured=f"Training waits {format_duration(own_ns)} of {format_duration(case.steps.mean_ns)} in collectives; {rest}",
        threshold=f"At least {format_share(EXPOSED_FRAC)} of the step.",
        advice=_OF_SHARDS[0] if case.ranks.is_sharded else _OF_COPIES[0],
        change=_OF_SHARDS[1] if case.ranks.is_sharded else _OF_COPIES[1],
        fix="overlapping half of the communication",
        what_if=shorten_step(case, "communication", transfer_ns, 0.5),
        gain_range=(0.3, 1.8),
    )


def _judge_gloo_on_cuda(case: Case) -> Finding | None:
    """Gradients of CUDA devices are reduced by gloo, over the memory of the host."""
    ddp, transfer_ns = case.ranks.ddp, case.transfer_ns
    if ddp is None or ddp.backend != "gloo" or ddp.device_type != "cuda":
        return None
    share = transfer_ns / case.steps.mean_ns
    if share < GLOO_FRAC:
        return None
    return Finding(
        title="Gradients on CUDA devices are reduced by gloo",
        measured=f"The process group of DistributedDataParallel uses gloo; training waits {format_duration(transfer_ns)} per "
        f"{case.steps.noun} for it ({format_share(share)}).",
        threshold=f"gloo with parameters on CUDA, and at least {format_share(GLOO_FRAC)} of the {case.steps.noun}.",
        advice="gloo copies gradients to the host and sums them there. NCCL sums them on the devices, over their own links.",
        change='torch.distributed.init_process_group("nccl")  # or "cpu:gloo,cuda:nccl" where host tensors are sent, too',
        fix="NCCL",
        what_if=shorten_step(case, "communication", transfer_ns, 0.7),
        gain_range=(0.6, 1.3),
    )


def _judge_no_sync_missing(case: Case) -> Finding | None:
    """Gradients are accumulated over several backwards, and reduced in each of them."""
    if case.needless_syncs_frac <= 0.0:
        return None
    saved_ns = case.needless_syncs_frac * case.transfer_ns
    share = saved_ns / case.steps.mean_ns
    if share < UNSYNCED_FRAC:
        return None
    backwards = case.backwards_per_update
    return Finding(
        title="Gradients are reduced in every backward, although they are accumulated",
        measured=f"An update follows {backwards:.2g} backwards, and each of them reduces the gradients; training waits "
        f"{format_duration(case.transfer_ns)} per {case.steps.noun} for that, the wait for slower ranks taken out.",
        threshold=f"At least {MIN_ACCUMULATED} backwards per update, nearly all of them reduced, and at least "
        f"{format_share(UNSYNCED_FRAC)} of the {case.steps.noun} to be saved.",
        advice="Reduce in the last backward before the update only: the sum is the same.",
        change="with contextlib.nullcontext() if is_last else model.no_sync():\n    loss = model(batch) / accumulate\n"
        "    loss.backward()",
        fix="no_sync() in all backwards but the last",
        tier="A",
        what_if=_drop_reductions(case),
        gain_range=(0.7, 1.6) if _reduces_on_processors(case) else (0.7, 1.1),
    )


def _drop_reductions(case: Case) -> WhatIf:
    """Return the what-if of reductions that are left out; on processors they also slow the backward that hides them."""
    what_if = shorten_step(case, "communication", case.transfer_ns, case.needless_syncs_frac)
    if not _reduces_on_processors(case):
        return what_if
    return replace(what_if, touches={**what_if.touches, "backward": case.steps.phases_ns["backward"]})


def _reduces_on_processors(case: Case) -> bool:
    return case.ranks.ddp is not None and case.ranks.ddp.device_type == "cpu"


def _judge_bucket_copies(case: Case) -> Finding | None:
    """On a host, DistributedDataParallel copies every gradient into a bucket and back."""
    ddp = case.ranks.ddp
    if ddp is None or ddp.shares_buckets or ddp.device_type != "cpu" or not ddp.synced_backwards:
        return None
    synced = ddp.synced_backwards / ddp.backwards * case.backwards_per_step
    copied_ns = 2 * ddp.parameter_bytes * synced / COPIED_BYTES_PER_S * 1e9
    spent_ns = min(copied_ns, case.steps.phases_ns["backward"])
    share = spent_ns / case.steps.mean_ns
    if share < COPIES_FRAC:
        return None
    return Finding(
        title="Gradients are copied into buckets and back",
        measured=f"gradient_as_bucket_view is off: {format_bytes(ddp.parameter_bytes)} of gradients are copied twice per "
        f"reduction, about {format_duration(spent_ns)} per {case.steps.noun} ({format_share(share)}).",
        threshold=f"At least {format_share(COPIES_FRAC)} of the {case.steps.noun} at {format_bytes(COPIED_BYTES_PER_S)}/s.",
        advice="Let the gradients lie in the buckets; it also saves their memory. Not with code that calls detach_() on "
        "gradients.",
        change="model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
        fix="gradient_as_bucket_view=True",
        assumption="the host copies as fast as that",
        what_if=shorten_step(case, "backward", spent_ns, 0.9),
        gain_range=(0.4, 1.5),
    )


_UNFIT = Abstention(
    "bucket_size",
    "reductions of at least two sizes whose time follows their size, without waits for slower ranks",
    "Record a window on every rank, after the first steps.",
)


def _judge_bucket_size(case: Case) -> Finding | Abstention | None:
    """DistributedDataParallel sends gradients in too many small buckets, or in one."""
    seen = look_for(case, "bucket_size", "larger_buckets") if case.device.replay is not None else None
    if isinstance(seen, Sighting) and seen.gain is not None:
        return _describe_replayed(case, seen, seen.gain)
    found = _judge_noted(case)
    if found is not None:
        return found
    if seen is None or isinstance(seen, Abstention):
        return seen
    is_large = seen.figures["bytes"] >= seen.count * USUAL_BUCKET_BYTES
    return None if is_large or seen.spent_ns < EXPOSED_FRAC * case.steps.mean_ns else _UNFIT


def _describe_replayed(case: Case, seen: Sighting, gain: Gain) -> Finding | None:
    """Judge buckets that the window shows: joined ones are sent later, so only the replay knows what they save."""
    if gain.frac < MIN_GAIN_FRAC:
        return None
    figures = seen.figures
    count = seen.count / figures["backwards"]
    joined = figures["joined"] / figures["backwards"]
    wanted, mib_ns = round(figures["cap_mib"]), 1e9 * (1 << 20) / figures["bytes_per_s"]
    finding = Finding(
        title="Gradients are sent in many small buckets",
        measured=f"{count:.0f} buckets per backward, {format_bytes(figures['bytes'] / figures['backwards'])} in all; their "
        f"all-reduces take {format_duration(seen.spent_ns)} per {case.steps.noun}. By their sizes and times in this window "
        f"one takes {format_duration(figures['latency_ns'])} and {format_duration(mib_ns)} for each MiB.",
        threshold=f"With larger buckets the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice=f"Each bucket costs a round trip between the ranks. With bucket_cap_mb={wanted} they are {joined:.0f}, sent when "
        "the last of their gradients is there. Try some sizes: the best depends on the network.",
        change=f"model = DistributedDataParallel(model, bucket_cap_mb={wanted})",
        fix=f"bucket_cap_mb={wanted}",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "communication", gain)


def _judge_noted(case: Case) -> Finding | None:
    ddp, transfer_ns = case.ranks.ddp, case.transfer_ns
    if ddp is None or not case.has_odd_buckets:
        return None
    share = transfer_ns / case.steps.mean_ns
    if share < EXPOSED_FRAC:
        return None
    count, whole = len(ddp.bucket_bytes), sum(ddp.bucket_bytes)
    wanted = 25 if ddp.has_tiny_buckets else max(1, round(whole / 6 / (1 << 20)))
    why = (
        "Each bucket costs a round trip between the ranks. Larger ones are fewer."
        if ddp.has_tiny_buckets
        else "One bucket is sent when the backward is over, so nothing hides it. Smaller ones are sent while it computes."
    )
    return Finding(
        title="Gradients are sent in many small buckets"
        if ddp.has_tiny_buckets
        else "Gradients are sent in one bucket",
        measured=f"{count} bucket{'' if count == 1 else 's'}, {format_bytes(whole)} in all; training waits "
        f"{format_duration(transfer_ns)} per {case.steps.noun} for them ({format_share(share)}).",
        threshold=f"At least {format_share(EXPOSED_FRAC)} of the {case.steps.noun}, and one bucket of 4 MiB or more, or eight "
        "or more of less than 1 MiB.",
        advice=f"{why} Try some sizes: the best depends on the network.",
        change=f"model = DistributedDataParallel(model, bucket_cap_mb={wanted})",
        fix=f"bucket_cap_mb={wanted}",
        what_if=shorten_step(case, "communication", transfer_ns, 0.5),
        gain_range=(0.5, 1.6),
    )


RULES = (
    Rule("exposed_all_reduce", knob="communication", effort="argument", judge=_judge_exposed_all_reduce),
    Rule("gloo_on_cuda", knob="communication", effort="flag", judge=_judge_gloo_on_cuda),
    Rule("no_sync_missing", knob="communication", effort="code", judge=_judge_no_sync_missing),
    Rule("bucket_copies", knob="bucket_view", effort="flag", judge=_judge_bucket_copies),
    Rule("bucket_size", knob="communication", effort="argument", judge=_judge_bucket_size),
)
