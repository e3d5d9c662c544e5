"""Communication that nothing hides, after waiting for a slow rank is taken out."""

from __future__ import annotations

from profiler_server.diagnosis.limits import EXPOSED_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share

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


def _judge(case: Case) -> Finding | None:
    # In a pipeline this is mostly waiting for other stages.
    if case.ranks.world_size < 2 or case.ranks.judgement.stages > 1:
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
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "communication", transfer_ns, 0.5),
        gain_range=(0.3, 1.8),
    )


RULE = Rule("exposed_all_reduce", knob="communication", effort="argument", judge=_judge)
