"""Gradients of CUDA devices are reduced by gloo, over the memory of the host."""

from __future__ import annotations

from profiler_server.diagnosis.limits import GLOO_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
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
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "communication", transfer_ns, 0.7),
        gain_range=(0.6, 1.3),
    )


RULE = Rule("gloo_on_cuda", knob="communication", effort="flag", judge=_judge)
