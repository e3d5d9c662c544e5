"""What-ifs: changes to the model of the loop whose step time the diagnosis then predicts.

Times of the model may be scaled to a quiet host, so a change takes a share of them, never measured nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from collector.estimating.model import Job, LoopModel
from collector.format.phases import PHASES
from profiler_server.diagnosis.limits import CONTENTION_WEIGHT, MIN_GAIN_FRAC, MIN_GAIN_NS, MOST_OF_DELAY
from profiler_server.facts.case import Case, WhatIf
from profiler_server.facts.loading import BatchTimes, Floats
from profiler_server.facts.machine import Gain
from profiler_server.facts.steps import Interruptions, Ints, read_column

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


def feed(case: Case, change: Callable[[LoopModel], LoopModel], spared_ns: float = 0.0) -> WhatIf:
    """Return the what-if of a change to how batches are made: at most the wait for data goes, and what else is spared."""
    spared = {"processors": spared_ns} if spared_ns else {}
    bound_ns = case.ranks.find_bound_ns(case.manifest.rank)
    wait_ns = min(case.data_wait_ns, MOST_OF_DELAY * bound_ns)
    return WhatIf(change, {"data_wait": wait_ns, **spared}, feeds=True, bound_ns=bound_ns)


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

    found = feed(case, leave(factor), case.loading.choices.spared_ns)
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
    return sum(int(read_column(rows, "duration_ns").sum()) for rows in (case.steps.rows, case.steps.other_rows))


def measure_garbage_outside(case: Case) -> float:
    """Return the time per mean step of collections by which steps are longer outside of training than without one."""
    kept = case.steps.selection.kept
    gc_ns, gap_ns, tail_ns = (read_column(case.steps.rows, name)[kept] for name in ("gc_ns", "gap_ns", "tail_ns"))
    outside = gap_ns + tail_ns
    if not gc_ns.any():
        return 0.0
    quiet = gc_ns == 0
    usual = float(np.median(outside[quiet])) if quiet.any() else float((outside - gc_ns).clip(0).min())
    return float(np.clip(outside - usual, 0.0, gc_ns).mean())


def sum_in_steps(case: Case, found: Interruptions) -> Floats:
    """Return for each training step how long what began within it (or before the next) held the thread, ns."""
    starts = read_column(case.steps.rows, "start_ns")
    at = starts.searchsorted(found.start_ns, side="right") - 1
    inside = at >= 0
    return np.bincount(at[inside], found.duration_ns[inside], len(starts)).astype(np.float64)


def measure_stalls(case: Case, found: Interruptions, spent_ns: Ints) -> float:
    """Return the share of the mean step that goes with what held the thread.

    `spent_ns` is what may be longer for it in each step: in those that it holds, as much as exceeds the median of the
    others goes with it, and at least the thing itself. Steps that the mean leaves out do not count.
    """
    kept = case.steps.selection.kept
    spent_ns, held_ns = spent_ns[kept], sum_in_steps(case, found)[kept]
    stalled = held_ns > 0
    usual = float(np.median(spent_ns[~stalled])) if not stalled.all() else float(spent_ns.min(initial=0))
    around = float(np.maximum(spent_ns[stalled] - usual, 0.0).sum())
    whole = float(case.steps.selection.duration_ns[kept].sum())
    return min(max(around, float(held_ns.sum())) / max(whole, 1.0), 1.0)


def find_min_gain_ns(case: Case) -> float:
    """Return what a fix must gain after all doubt, more on a host that others use."""
    return max(
        (MIN_GAIN_FRAC + CONTENTION_WEIGHT * case.loading.loop.contention_frac) * case.steps.mean_ns, MIN_GAIN_NS
    )
