"""nn.DataParallel copies the model to every device in every step, from one thread."""

from __future__ import annotations

from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    devices = case.ranks.parallel_devices
    if devices < 2:
        return None
    spent = sum(case.steps.phases_ns[name] for name in ("forward", "backward"))
    return Finding(
        title="nn.DataParallel is in use",
        measured=f"One process drives {devices} devices through nn.DataParallel; forward and backward take "
        f"{format_duration(spent)}, {format_share(case.steps.share('forward', 'backward'))} of the {case.steps.noun}.",
        threshold="Two devices or more.",
        advice="In every step it copies all parameters to every device, gathers all outputs on one, and runs all devices from "
        "Python threads that share one interpreter. DistributedDataParallel runs one process per device and exchanges "
        "gradients only, while the backward computes.",
        change="model = DistributedDataParallel(model.to(rank), device_ids=[rank])\n"
        f"# start with: torchrun --nproc-per-node={devices} train.py",
        fix="DistributedDataParallel",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("data_parallel", knob="parallel", effort="code", judge=_judge)
