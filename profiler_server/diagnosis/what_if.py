"""What-ifs: changes to the model of the loop whose step time the diagnosis then predicts.

Times of the model may be scaled to a quiet host, so a change takes a share of them, never measured nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from collector.format.phases import PHASES
from collector.format.steps import read_integers
from profiler_server.analysis.data.batches import BatchTimes
from profiler_server.analysis.data.loader_simulation import Job, LoopModel, bound_workers, find_workers
from profiler_server.analysis.data.prediction import predict_without_loading
from profiler_server.analysis.replay.results import Gain
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import WhatIf
from profiler_server.diagnosis.limits import MOST_OF_DELAY

_COMPUTED_PARTS = ("anomaly", "outside", "stalls", "gc", "python", "caches")
"""Parts of a step in which the training thread computes something that is no operator."""
_PHASES_OF = {
    "outside": ("gap", "tail"),
    "communication": ("communication", "backward"),
    "caches": ("forward", "backward", "optimizer"),
}
"""The phases in which a part of the step lies that is no phase itself."""
_HOST_PHASES = frozenset({"data_wait", "gap", "tail"})
"""Phases that say how long they take where a device computes: the others end before what they have launched."""


@dataclass(frozen=True)
class Choice:
    """A number of workers, and how it was found in words that follow a colon."""

    workers: int
    reason: str


def choose_workers(case: Case) -> Choice:
    """Return the smallest number of workers within 3 % of the best, as `collector.estimate` proposes it.

    A simulation that does not reproduce the run as it is chooses nothing: then as many as make a batch in the time of
    a step, W = S / (T − D), the work on a batch over the step without its wait for data.
    """
    loop = case.loading.loop
    most = bound_workers(case.host.cores, case.loading.cpu_need)
    if loop.trusted:
        workers = find_workers(replace(loop.model, workers=1), most=most)
        return Choice(workers, "the smallest number whose step is within 3 % of the best")
    own_ns = max(loop.regular_step_ns - case.loading.wait_ns, 0.01 * loop.regular_step_ns)
    workers = math.ceil(case.loading.batch_ns * loop.fetches / own_ns) if own_ns > 0 else 1
    return Choice(max(1, min(workers, most)), "so many make the batches of a step in the time of a step")


def feed(case: Case, change: Callable[[LoopModel], LoopModel], spared_ns: float = 0.0) -> WhatIf:
    """Return the what-if of a change to how batches are made: at most the wait for data goes, and what else is spared."""
    spared = {"processors": spared_ns} if spared_ns else {}
    bound_ns = case.ranks.find_bound_ns(case.manifest.rank)
    wait_ns = min(case.data_wait_ns, MOST_OF_DELAY * bound_ns)
    return WhatIf(change, {"data_wait": wait_ns, **spared}, feeds=True, bound_ns=bound_ns)


def find_spared_ns(case: Case) -> float:
    """Return how long a step queues for a processor that the workers hold: less work of theirs gives it back.

    It is no more than the training thread was seen to queue, nor than a step beside no workers is shorter.
    """
    load, loop = case.host.load, case.loading.loop
    if load is None or not load.queued_frac or not loop.trusted or not loop.model.workers:
        return 0.0
    shorter_ns = loop.own_ns - predict_without_loading(loop, loop.model) + loop.model.extra_ns
    return max(0.0, min(load.queued_frac * loop.regular_step_ns, shorter_ns))


def set_workers(case: Case, workers: int) -> WhatIf:
    return feed(case, lambda model: replace(model, workers=workers, prefetch=max(model.prefetch, 2)))


def scale_stages(case: Case, batches: BatchTimes, stages: tuple[str, ...], factor: float) -> WhatIf:
    """Return the what-if of stages that take `factor` of their time, batch for batch; at best nothing of it is left."""
    taken = sum(batches.stages_ns[stage] for stage in stages if stage in batches.stages_ns) / batches.total_ns

    def leave(left: float) -> Callable[[LoopModel], LoopModel]:
        def change(model: LoopModel) -> LoopModel:
            kept = 1.0 - (1.0 - left) * taken[-len(model.batches) :]
            jobs = zip(model.batches, kept, strict=True)
            batches = tuple(Job(job.wall_ns * float(part), job.cores) for job, part in jobs)
            receive = model.receive.scale(left) if "send" in stages else model.receive  # what is packed is unpacked
            return replace(model, batches=batches, receive=receive)

        return change

    found = feed(case, leave(factor), find_spared_ns(case))
    # Without workers the training thread does this work, too.
    alone = not case.loading.loop.model.workers and not case.device.is_used
    return replace(found, best=leave(0.0), eases=alone)


def shorten_step(case: Case, part: str, part_ns: float, saved_frac: float) -> WhatIf:
    """Return the what-if of a part of the step, outside of the wait for data, of which a share is saved.

    Parts are parts of the step as it was measured, so what several changes save adds up.
    """
    own_ns = case.loading.loop.own_ns
    saved = saved_frac * (min(part_ns / own_ns, 1.0) if own_ns > 0 else 0.0)

    def change(model: LoopModel) -> LoopModel:
        left = max(model.left - saved, 0.0)
        kept = left / model.left if model.left > 0 else 1.0
        # In proportion: what stalls some steps is saved in those, and cannot be saved in the short ones between.
        steps = tuple(Job(step.wall_ns * kept, step.cores) for step in model.steps)
        return replace(model, steps=steps, left=left)

    return WhatIf(change, {part: part_ns}, eases=part in _COMPUTED_PARTS and not case.device.is_used)


def also(first: WhatIf, second: WhatIf) -> WhatIf:
    """Return the what-if of both changes, which shorten different parts of the step."""

    def both(change: Callable[[LoopModel], LoopModel]) -> Callable[[LoopModel], LoopModel]:
        return lambda model: second.change(change(model))

    best = None if first.best is None else both(first.best)
    return replace(
        first,
        change=both(first.change),
        best=best,
        touches={**first.touches, **second.touches},
        eases=first.eases or second.eases,
    )


def shorten_phases(case: Case, phases: tuple[str, ...], saved_frac: float) -> WhatIf:
    """Return the what-if of phases of which a share is saved."""
    spent = {phase: case.steps.phases_ns[phase] for phase in phases}
    return replace(shorten_step(case, "phases", sum(spent.values()), saved_frac), touches=spent)


def shorten_kernels(case: Case, share: float, saved_frac: float) -> WhatIf:
    """Return the what-if of kernels, a share of the device's computing, of which a share is saved."""
    shares = case.device.shares
    busy = shares.compute if shares is not None else 0.0
    return shorten_step(case, "kernels", share * busy * case.loading.loop.own_ns, saved_frac)


def save_replayed(case: Case, part: str, gain: Gain) -> WhatIf:
    """Return the what-if of a change that saves a share of the step, as a replay of the recorded window gives it."""
    step_ns = case.steps.mean_ns
    saved = shorten_step(case, part, gain.frac * step_ns, 1.0)
    return replace(saved, touches={part: gain.high_frac * step_ns})


def bound_gain(gain: Gain) -> tuple[float, float]:
    """Return the range of a replayed gain as shares of the usual one."""
    return (gain.low_frac / gain.frac, gain.high_frac / gain.frac) if gain.frac > 0 else (0.0, 1.0)


def name_shortened(case: Case, what_if: WhatIf | None) -> tuple[str, ...]:
    """Return the phases that a change makes shorter, in their order; empty where it may be any."""
    parts = () if what_if is None else tuple(what_if.touches)
    found = {phase for part in parts for phase in _PHASES_OF.get(part, (part,))}
    known = tuple(phase.name for phase in PHASES if phase.name in found)
    is_told = len(known) == len(found) and (not case.device.is_used or found <= _HOST_PHASES)
    return known if is_told else ()


def mend_ranks(case: Case, part: str) -> WhatIf:
    """Return the what-if of slow ranks that are in time: of every rank the step is that of the job without their delay.

    All of it is saved in one part of this rank's step.
    """
    judged = case.ranks.judgement
    gain_ns = judged.straggler.gain_ns if judged.straggler is not None else 0.0
    saved_ns = max(case.steps.mean_ns - (judged.step_ns or case.steps.mean_ns) + gain_ns, 0.0)
    # The others do not work less for it.
    most_ns = case.steps.mean_ns - (judged.straggler.others_ns if judged.straggler is not None else 0.0)
    return save_each_step(part, saved_ns, most_ns)


def save_each_step(part: str, saved_ns: float, most_ns: float = math.inf) -> WhatIf:
    """Return the what-if of so much less time in a part of each step, of at most `most_ns`, whatever else the step does."""
    most_ns = min(MOST_OF_DELAY * saved_ns, max(most_ns, saved_ns))
    return WhatIf(lambda model: replace(model, extra_ns=model.extra_ns - saved_ns), {part: most_ns})


def drop_extra(case: Case, saved_ns: float) -> WhatIf:
    """Return the what-if of waits for data at the start of epochs that cost so much less per step."""
    return feed(case, lambda model: replace(model, extra_ns=model.extra_ns - saved_ns))


def sum_recorded_ns(case: Case) -> int:
    """Return the recorded time: what pages and report count what lies between the steps as a share of."""
    return sum(int(read_integers(rows, "duration_ns").sum()) for rows in (case.steps.rows, case.steps.other_rows))


def measure_garbage_outside(case: Case) -> float:
    """Return the time per mean step of collections by which steps are longer outside of training than without one."""
    kept = case.steps.selection.kept
    gc_ns, gap_ns, tail_ns = (read_integers(case.steps.rows, name)[kept] for name in ("gc_ns", "gap_ns", "tail_ns"))
    outside = gap_ns + tail_ns
    if not gc_ns.any():
        return 0.0
    quiet = gc_ns == 0
    usual = float(np.median(outside[quiet])) if quiet.any() else float((outside - gc_ns).clip(0).min())
    return float(np.clip(outside - usual, 0.0, gc_ns).mean())
