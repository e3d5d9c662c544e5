"""Python's garbage collector runs during the steps, by itself or called by the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from collector.estimating.model import Job, LoopModel
from profiler_server.diagnosis.limits.thread import COLD_FRAC, GC_FRAC
from profiler_server.diagnosis.what_if import measure_garbage_outside, shorten_step, sum_in_steps
from profiler_server.diagnosis.wording import find_in_phases, say_functions
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.facts.steps import Ints, read_column
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    # What is collected while a function is compiled goes with the compilation.
    compiles = sum_in_steps(case, case.steps.interruptions.of_kind("compile", "recompile")) > 0
    every = np.where(compiles, 0, read_column(case.steps.rows, "gc_ns"))
    gc_ns = every[case.steps.selection.kept]
    mean = float(gc_ns.mean())
    if mean < GC_FRAC * case.steps.mean_ns:
        return None
    steps = int((gc_ns > 0).sum())
    outside_ns = min(measure_garbage_outside(case), mean)
    place = find_in_phases(case, "gap", "tail") if outside_ns >= mean / 2 else None
    return Finding(
        title="Garbage collection interrupts the steps",
        measured=f"It takes {format_duration(mean)} per step ({format_share(mean / case.steps.mean_ns)}), "
        f"in {steps} of {len(gc_ns)} steps; "
        f"the longest took {format_duration(int(gc_ns.max()))}.{say_functions(place, 'the time outside of training')}",
        threshold=f"At least {format_share(GC_FRAC)} of the step.",
        advice="Freeze the objects that live through the whole run, switch automatic collection off, and collect when it "
        "suits. A gc.collect() of the loop's own counts too: once in 1,000 steps is enough.",
        change="gc.collect()\ngc.freeze()\ngc.disable()\nfor step, batch in enumerate(loader):\n    ...\n"
        "    if step % 1000 == 0:\n        gc.collect()",
        fix="gc.freeze() and gc.disable()",
        what_if=_stop_collecting(case, every, outside_ns),
        tier="A",
        gain_range=(0.9, 1.05),
    )


def _stop_collecting(case: Case, gc_ns: Ints, outside_ns: float) -> WhatIf:
    """Return the what-if, which shortens what lies outside of training as far as the collections lie there.

    Less work there would take those away, too: both together save them once. The same holds of collections while the
    training thread makes its batches.
    """
    mean_ns = float(gc_ns[case.steps.selection.kept].mean())
    waiting_ns = min(_measure_waiting(case, gc_ns) * mean_ns, mean_ns - outside_ns)
    cold_ns = _measure_cold(case, gc_ns, mean_ns)
    found = shorten_step(case, "gc", mean_ns - waiting_ns + cold_ns, 1.0)
    inside_ns = mean_ns - outside_ns - waiting_ns
    touches = {"outside": outside_ns, "gc": inside_ns, "data_wait": waiting_ns, "caches": cold_ns}
    return replace(found, change=_shorten_batches(case, found.change, waiting_ns), touches=touches)


def _measure_waiting(case: Case, gc_ns: Ints) -> float:
    """Return the share of the collections that lies in the wait for data of a loader without workers.

    It is by how much the wait grows with the time of the collections (least squares), 0 where that is always the same.
    """
    loop, regular = case.loading.loop, case.steps.selection.regular
    if loop.model.workers or not loop.model.batches:
        return 0.0
    collected, waited = gc_ns[regular].astype(float), read_column(case.steps.rows, "data_wait_ns")[regular]
    apart = collected - collected.mean()
    spread = float(apart @ apart)
    return float(np.clip(apart @ waited / spread, 0.0, 1.0)) if spread else 0.0


def _measure_cold(case: Case, gc_ns: Ints, mean_ns: float) -> float:
    """Return by how much the mean step is longer because a collection lies in the one before, where steps differ in that."""
    regular = np.flatnonzero(case.steps.selection.regular)
    after = gc_ns[np.maximum(regular - 1, 0)] > 0
    if not after.any() or after.all():
        return 0.0
    durations = case.steps.selection.duration_ns[regular] - gc_ns[regular]
    longer = float(np.median(durations[after]) - np.median(durations[~after]))
    return float(np.clip(longer * after.mean(), 0.0, COLD_FRAC * mean_ns))


def _shorten_batches(
    case: Case, change: Callable[[LoopModel], LoopModel], saved_ns: float
) -> Callable[[LoopModel], LoopModel]:
    wait_ns = case.loading.wait_ns
    kept = max(1.0 - saved_ns / wait_ns, 0.0) if wait_ns > 0 else 1.0

    def shorten(model: LoopModel) -> LoopModel:
        batches = tuple(Job(job.wall_ns * kept, job.cores) for job in model.batches)
        return change(replace(model, batches=batches) if kept < 1.0 else model)

    return shorten


RULES = (Rule("gc_pauses", knob="gc", effort="code", judge=_judge),)
