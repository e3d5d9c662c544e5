"""The workers need more processors than there are: more of them would not help."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CAPPED_DEMAND_FRAC, CAPPED_NEED
from profiler_server.diagnosis.wording import STAGES_PAGE, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    loader = case.loading.loader
    if loader is None or not loader.num_workers or not case.loading.is_input_bound or case.loading.batches is None:
        return None
    if case.loading.batches.cpu_ns is None or not case.is_capped or case.loading.bottleneck.stage is None:
        return None
    return Finding(
        title="The processors are the limit, not the number of workers",
        measured=f"{say_wait(case)} A worker keeps {format_share(case.loading.cpu_need)} of a core busy while it "
        f"makes a batch ({format_duration(case.loading.batch_ns)}); {min(case.demand_frac, 1.0) * case.host.cores:.1f} of {case.host.cores:g} cores "
        "are in use.",
        threshold=f"A worker per core or more, each needing a processor for more than {format_share(CAPPED_NEED)} of its work, and at "
        f"least {format_share(CAPPED_DEMAND_FRAC)} of the usable cores in use.",
        advice="More workers would only compete for the same cores. Make each sample cheaper (decode smaller images, resize "
        "before other transforms, store what every epoch computes again), or give the job more cores.",
        change="# store once what every epoch computes again, and read that:\n"
        "torch.save(preprocess(sample), cache_path)",
        fix="less processor work per sample",
        evidence=(STAGES_PAGE,),
        severity="medium",
    )


RULE = Rule("workers_capped_by_cores", knob="cores", effort="code", judge=_judge)
