"""What-ifs: changes to the model of the loop whose step time the diagnosis then predicts.

Times of the model may be scaled to a quiet host, so a change takes a share of them, never measured nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from profiler_server.analysis.data.loader_simulation import Job, LoopModel, bound_workers, find_workers
from profiler_server.analysis.data.loop import BatchTimes
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import WhatIf


def choose_workers(case: Case) -> int:
    """Return the smallest number of workers within 3 % of the best, as `collector.estimate` proposes it."""
    most = bound_workers(case.host.cores, case.loading.cpu_need)
    return find_workers(replace(case.loading.loop.model, workers=1), most=most)


def feed(case: Case, change: Callable[[LoopModel], LoopModel]) -> WhatIf:
    """Return the what-if of a change to how batches are made: at most the wait for data goes."""
    return WhatIf(change, {"data_wait": case.data_wait_ns}, feeds=True)


def set_workers(case: Case, workers: int) -> WhatIf:
    """Return the what-if of another number of workers."""
    return feed(case, lambda model: replace(model, workers=workers, prefetch=max(model.prefetch, 2)))


def scale_stages(case: Case, batches: BatchTimes, stages: tuple[str, ...], factor: float) -> WhatIf:
    """Return the what-if of stages that take `factor` of their time, batch for batch."""
    taken = sum(batches.stages_ns[stage] for stage in stages if stage in batches.stages_ns) / batches.total_ns

    def change(model: LoopModel) -> LoopModel:
        shares = taken[-len(model.batches) :]
        kept = 1.0 - (1.0 - factor) * shares
        jobs = zip(model.batches, kept, strict=True)
        return replace(model, batches=tuple(Job(job.wall_ns * float(part), job.cores) for job, part in jobs))

    return feed(case, change)


def shorten_step(case: Case, part: str, part_ns: float, saved_frac: float) -> WhatIf:
    """Return the what-if of a part of the step, outside of the wait for data, of which a share is saved."""
    own_ns = case.loading.loop.own_ns
    taken = min(part_ns / own_ns, 1.0) if own_ns > 0 else 0.0
    kept = 1.0 - saved_frac * taken

    def change(model: LoopModel) -> LoopModel:
        # In proportion: what stalls some steps is saved in those, and cannot be saved in the short ones between.
        return replace(model, steps=tuple(Job(step.wall_ns * kept, step.cores) for step in model.steps))

    return WhatIf(change, {part: part_ns})


def shorten_phases(case: Case, phases: tuple[str, ...], saved_frac: float) -> WhatIf:
    """Return the what-if of phases of which a share is saved."""
    spent = {phase: case.steps.phases_ns[phase] for phase in phases}
    return replace(shorten_step(case, "phases", sum(spent.values()), saved_frac), touches=spent)


def shorten_kernels(case: Case, share: float, saved_frac: float) -> WhatIf:
    """Return the what-if of kernels, a share of the device's computing, of which a share is saved."""
    shares = case.device.shares
    busy = shares.compute if shares is not None else 0.0
    return shorten_step(case, "kernels", share * busy * case.loading.loop.own_ns, saved_frac)


def drop_extra(case: Case, saved_ns: float) -> WhatIf:
    """Return the what-if of waits for data at the start of epochs that cost so much less per step."""
    return feed(case, lambda model: replace(model, extra_ns=model.extra_ns - saved_ns))
