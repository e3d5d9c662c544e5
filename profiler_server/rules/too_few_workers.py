"""The workers are busy all the time and still late."""

from __future__ import annotations

from profiler_server.analysis.loader_simulation import find_workers
from profiler_server.analysis.results import Abstention
from profiler_server.diagnosis.case import (
    DATA_PAGE,
    STAGES_PAGE,
    Case,
    Finding,
    Rule,
    say_wait,
    set_workers,
    write_loader,
)
from profiler_server.format import format_duration, format_share

_NOT_READY = 0.3
_BUSY = 0.8
_WAITING = 0.5
"""Workers beyond the number of cores help only those that wait for storage for most of their time."""


def _judge(case: Case) -> Finding | Abstention | None:
    loader = case.loader
    if loader is None or not loader.num_workers or not case.is_input_bound:
        return None
    if case.batches is None:
        return Abstention(
            "too_few_workers", "how long the workers take per batch", "Record with Profiler(data_pipeline=True)."
        )
    busy = case.batch_ns * case.loop.fetches / (loader.num_workers * case.loop.regular_step_ns)
    if case.not_ready_frac <= _NOT_READY or busy < _BUSY:
        return None
    jobs = case.loop.model.batches
    waiting = 1.0 - sum(job.cores for job in jobs) / len(jobs)
    if waiting <= _WAITING and loader.num_workers >= case.cores:
        return None
    workers = find_workers(case.loop.model)
    if workers <= loader.num_workers:
        return None
    return Finding(
        title="More workers would keep up",
        measured=f"{say_wait(case)} The next batch was missing {format_share(case.not_ready_frac)} of the time; "
        f"{loader.num_workers} workers need {format_duration(case.batch_ns)} per batch and are busy "
        f"{format_share(min(busy, 1.0))} of the time.",
        threshold=f"Next batch missing more than {format_share(_NOT_READY)}, workers busy more than {format_share(_BUSY)}.",
        advice=f"Use {workers} workers: the smallest number whose step is within 3 % of the best on "
        f"{case.cores:g} usable cores.",
        change=write_loader(loader, num_workers=workers),
        fix=f"num_workers {loader.num_workers} → {workers}",
        evidence=(DATA_PAGE, STAGES_PAGE),
        what_if=set_workers(workers),
        tier="R" if case.loop.assumed else "M",
        gain_range=(0.5, 1.05) if case.loop.assumed else (0.85, 1.05),
    )


RULE = Rule("too_few_workers", knob="workers", effort="argument", judge=_judge)
