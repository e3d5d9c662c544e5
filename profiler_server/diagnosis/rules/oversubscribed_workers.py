"""More workers than cores, all of them computing."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.analysis.data.loader_simulation import find_workers, simulate
from profiler_server.diagnosis.case import STAGES_PAGE, Case, Finding, Rule, write_loader
from profiler_server.format import format_cores, format_number_of, format_share

_CPU = 0.5
_DEMAND = 0.9


def _judge(case: Case) -> Finding | None:
    loader = case.loader
    if loader is None or case.batches is None or case.batches.cpu_ns is None or loader.num_workers <= case.cores:
        return None
    if case.cpu_need <= _CPU or case.demand_frac < _DEMAND or not case.is_input_bound:
        return None
    model = case.loop.model
    workers = min(find_workers(model, most=max(1, int(case.cores))), max(1, int(case.cores)))
    if simulate(replace(model, workers=workers)).step_ns > 1.03 * simulate(model).step_ns:
        return None
    return Finding(
        title="More workers than cores, and all of them compute",
        measured=f"{format_number_of(loader.num_workers, 'worker')} on {format_cores(case.cores)}; "
        f"{format_share(case.cpu_need)} of their work is processor time.",
        threshold=f"More workers than cores, processor share over {format_share(_CPU)}, and as fast with fewer. "
        "Workers that wait for storage do not count.",
        advice=f"With {format_number_of(workers, 'worker')} it is as fast by simulation, takes less memory and disturbs the "
        "training thread less.",
        change=write_loader(loader, num_workers=workers),
        fix=f"num_workers {loader.num_workers} → {workers}",
        evidence=(STAGES_PAGE,),
        severity="low",
    )


RULE = Rule("oversubscribed_workers", knob="workers", effort="argument", judge=_judge)
