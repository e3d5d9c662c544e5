"""DistributedDataParallel sends gradients in too many small buckets, or in one."""

from __future__ import annotations

from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import EXPOSED_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_bytes, format_duration, format_share


def _judge(case: Case) -> Finding | None:
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
