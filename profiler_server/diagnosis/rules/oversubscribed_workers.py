"""More workers than cores, all of them computing."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.analysis.data.loader_simulation import find_workers, simulate
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import CAPPED_DEMAND_FRAC, CAPPED_NEED
from profiler_server.diagnosis.wording import STAGES_PAGE, write_loader
from profiler_server.format import format_cores, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    loader = case.loading.loader
    if (
        loader is None
        or case.loading.batches is None
        or case.loading.batches.cpu_ns is None
        or loader.num_workers <= case.host.cores
        or not case.loading.loop.trusted  # that fewer are as fast is known from the simulation alone
    ):
        return None
    if case.loading.cpu_need <= CAPPED_NEED or case.demand_frac < CAPPED_DEMAND_FRAC or not case.loading.is_input_bound:
        return None
    model = case.loading.loop.model
    workers = min(find_workers(model, most=max(1, int(case.host.cores))), max(1, int(case.host.cores)))
    if simulate(replace(model, workers=workers)).step_ns > 1.03 * simulate(model).step_ns:
        return None
    return Finding(
        title="More workers than cores, and all of them compute",
        measured=f"{format_number_of(loader.num_workers, 'worker')} on {format_cores(case.host.cores)}; "
        f"{format_share(case.loading.cpu_need)} of their work is processor time.",
        threshold=f"More workers than cores, each needing a processor for more than {format_share(CAPPED_NEED)} of its work, and as "
        "fast with fewer. Workers that wait for storage do not count.",
        advice=f"With {format_number_of(workers, 'worker')} the simulated step is as short; it takes less memory and disturbs "
        "the training thread less.",
        change=write_loader(loader, num_workers=workers),
        fix=f"num_workers {loader.num_workers} → {workers}",
        evidence=(STAGES_PAGE,),
        severity="low",
    )


RULE = Rule("oversubscribed_workers", knob="workers", effort="argument", judge=_judge)
