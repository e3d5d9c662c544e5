"""On a host, DistributedDataParallel copies every gradient into a bucket and back."""

from __future__ import annotations

from profiler_server.diagnosis.limits import COPIED_BYTES_PER_S, COPIES_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_bytes, format_duration, format_share


def _judge(case: Case) -> Finding | None:
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
        evidence=(STEPS_PAGE,),
        assumption="the host copies as fast as that",
        what_if=shorten_step(case, "backward", spent_ns, 0.9),
        gain_range=(0.4, 1.5),
    )


RULE = Rule("bucket_copies", knob="bucket_view", effort="flag", judge=_judge)
