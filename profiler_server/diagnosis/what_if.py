"""What-ifs: changes to the model of the loop whose step time the diagnosis then predicts."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.analysis.data.loader_simulation import Job, LoopModel, find_workers
from profiler_server.analysis.data.loop import BatchTimes
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import WhatIf
from profiler_server.diagnosis.limits import MOST_WORKERS, MOST_WORKERS_PER_CORE


def choose_workers(case: Case) -> int:
    """Return the smallest number of workers within 3 % of the best, of those that the usable cores can feed.

    Workers that compute beyond the cores only take turns, and take processors from the step and from others; those
    that wait for storage are bounded by what a host stands.
    """
    fed = int(case.host.cores / max(case.loading.cpu_need, 0.01) + 0.25)
    most = max(1, min(fed, max(MOST_WORKERS, int(MOST_WORKERS_PER_CORE * case.host.cores))))
    return find_workers(replace(case.loading.loop.model, workers=1), most=most)


def set_workers(workers: int) -> WhatIf:
    """Return the what-if of another number of workers."""

    def change(model: LoopModel) -> LoopModel:
        return replace(model, workers=workers, prefetch=max(model.prefetch, 2))

    return change


def scale_stages(batches: BatchTimes, stages: tuple[str, ...], factor: float) -> WhatIf:
    """Return the what-if of stages that take `factor` of their time, batch for batch."""
    taken = sum(batches.stages_ns[stage] for stage in stages if stage in batches.stages_ns) / batches.total_ns

    def change(model: LoopModel) -> LoopModel:
        shares = taken[-len(model.batches) :]
        kept = 1.0 - (1.0 - factor) * shares
        jobs = zip(model.batches, kept, strict=True)
        return replace(model, batches=tuple(Job(job.wall_ns * float(part), job.cores) for job, part in jobs))

    return change


def shorten_step(saved_ns: float, fetches: float) -> WhatIf:
    """Return the what-if of a step that is shorter by so much outside of the wait for data."""

    def change(model: LoopModel) -> LoopModel:
        mean = sum(step.wall_ns for step in model.steps) / len(model.steps)
        # In proportion: what stalls some steps is saved in those, and cannot be saved in the short ones between.
        kept = max(1.0 - saved_ns / fetches / mean, 0.02)
        return replace(model, steps=tuple(Job(step.wall_ns * kept, step.cores) for step in model.steps))

    return change


def shorten_kernels(case: Case, saved_frac: float) -> WhatIf:
    """Return the what-if of kernels that take so much less of their time: only while it computes, the device is faster."""
    shares = case.device.shares
    busy = shares.compute if shares is not None else 0.0
    own_ns = case.loading.loop.regular_step_ns - case.loading.wait_ns
    return shorten_step(saved_frac * busy * own_ns, case.loading.loop.fetches)


def drop_extra(saved_ns: float) -> WhatIf:
    """Return the what-if of amortised events that cost so much less per step."""

    def change(model: LoopModel) -> LoopModel:
        return replace(model, extra_ns=model.extra_ns - saved_ns)

    return change
