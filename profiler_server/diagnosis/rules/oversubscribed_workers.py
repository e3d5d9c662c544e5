"""More workers than cores, all of them computing."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CAPPED_DEMAND_FRAC, CAPPED_NEED
from profiler_server.diagnosis.wording import STAGES_PAGE, write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_cores, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    loader, workers = case.loading.loader, case.loading.choices.fewer_workers
    if (
        loader is None
        or case.loading.batches is None
        or case.loading.batches.cpu_ns is None
        or workers is None
        or case.demand_frac < CAPPED_DEMAND_FRAC
    ):
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
