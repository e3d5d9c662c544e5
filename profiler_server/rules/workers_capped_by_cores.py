"""The workers need more processors than there are: more of them would not help."""

from __future__ import annotations

from profiler_server.analysis.loader_simulation import find_workers
from profiler_server.diagnosis.case import STAGES_PAGE, Case, Finding, Rule, say_wait
from profiler_server.format import format_duration, format_share

_CPU = 0.5
_DEMAND = 0.9


def _judge(case: Case) -> Finding | None:
    loader = case.loader
    if loader is None or not loader.num_workers or not case.is_input_bound or case.batches is None:
        return None
    if case.cpu_frac <= _CPU or case.batches.cpu_ns is None or case.demand_frac < _DEMAND:
        return None
    if find_workers(case.loop.model) > loader.num_workers:
        return None
    return Finding(
        title="The processors are the limit, not the number of workers",
        measured=f"{say_wait(case)} {format_share(case.cpu_frac)} of the {format_duration(case.batch_ns)} per batch is "
        f"processor time; loading and training want {case.demand_frac * case.cores:.1f} of {case.cores:g} cores.",
        threshold=f"Processor share over {format_share(_CPU)}, demand over {format_share(_DEMAND)} of the usable cores.",
        advice="More workers would only wait for each other. Make each sample cheaper (decode smaller images, resize "
        "before other transforms, store what is made anew in every epoch), or give the job more cores.",
        change="# store once what every epoch computes again, and read that:\n"
        "torch.save(preprocess(sample), cache_path)",
        fix="less processor work per sample",
        evidence=(STAGES_PAGE,),
        severity="medium",
    )


RULE = Rule("workers_capped_by_cores", knob="cores", effort="code", judge=_judge)
