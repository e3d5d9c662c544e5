"""DistributedDataParallel sends gradients in too many small buckets, or in one."""

from __future__ import annotations

from profiler_server.diagnosis.limits import EXPOSED_FRAC, MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.machine import Gain, Sighting
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share

_USUAL_BYTES = 10 << 20
"""Buckets of this size on average, such as those of the default cap of 25 MiB, are not small."""
_UNFIT = Abstention(
    "bucket_size",
    "reductions of at least two sizes whose time follows their size, without waits for slower ranks",
    "Record a window on every rank, after the first steps.",
)


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "bucket_size", "larger_buckets") if case.device.replay is not None else None
    if isinstance(seen, Sighting) and seen.gain is not None:
        return _describe_replayed(case, seen, seen.gain)
    found = _judge_noted(case)
    if found is not None:
        return found
    if seen is None or isinstance(seen, Abstention):
        return seen
    is_large = seen.figures["bytes"] >= seen.count * _USUAL_BYTES
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
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "communication", transfer_ns, 0.5),
        gain_range=(0.5, 1.6),
    )


RULE = Rule("bucket_size", knob="communication", effort="argument", judge=_judge)
