"""Interruptions of some steps: saving, compiling, periodic stalls, and garbage collection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from collector.estimating.model import Job, LoopModel
from collector.format.phases import OUTSIDE, PHASE_NAMES
from profiler_server.diagnosis.limits import thread as limits
from profiler_server.diagnosis.limits.facts import DOMINANT_FRAC
from profiler_server.diagnosis.what_if import (
    measure_garbage_outside,
    measure_stalls,
    shorten_step,
    sum_in_steps,
    sum_recorded_ns,
)
from profiler_server.facts.case import STEPS_PAGE, Case, Evidence, Finding, Rule, WhatIf
from profiler_server.facts.loading import Floats
from profiler_server.facts.steps import (
    HeldSum,
    Ints,
    Kind,
    NamedFunction,
    read_column,
    sum_interruptions,
)
from profiler_server.words.phrases import (
    FUNCTIONS,
    describe,
    find_dominant,
    find_in_phases,
    name_parts,
    say_functions,
    spell_call,
)


def _judge_checkpoint_stall(case: Case) -> Finding | None:
    """Checkpoints, seen as they are saved or marked by the user, take a noticeable part of the time."""
    saves = sum_interruptions(case.steps.interruptions.of_kind("checkpoint"))
    if not saves:
        return None
    most = saves[0]
    share = most.total_ns / sum_recorded_ns(case)
    if share < limits.CHECKPOINT_FRAC:
        return None
    # The flushes and renames of a save also lie outside of forward, backward and update.
    outside = read_column(case.steps.rows, "gap_ns") + read_column(case.steps.rows, "tail_ns")
    stall = measure_stalls(case, case.steps.interruptions.of_kind("checkpoint"), outside)
    return Finding(
        describe(case, "checkpoint_stall", most=most, share=share),
        evidence=(*_find_step(case, most), Evidence("timeline", f"q={most.held.name}", "On the timeline")),
        what_if=shorten_step(case, "stalls", stall * case.steps.mean_ns, limits.BACKGROUND_SAVED_FRAC),
        doubt_frac=0.2,
        least_frac=0.6,
    )


def _find_step(case: Case, most: HeldSum) -> tuple[Evidence, ...]:
    starts = read_column(case.steps.rows, "start_ns")
    at = int(starts.searchsorted(most.longest_at_ns, side="right")) - 1
    if at < 0:
        return (STEPS_PAGE,)
    step = int(case.steps.selection.step[at])
    return (Evidence("steps", f"step={step}", f"Step {step}, which holds the longest"),)


def _judge_recompiles(case: Case) -> Finding | None:
    """torch.compile compiles the same function again and again."""
    again = case.steps.compiles.get("recompile")
    if again is None or again.count < limits.MIN_RECOMPILES:
        return None
    share = again.duration_ns / max(float(read_column(case.steps.rows, "duration_ns").sum()), 1.0)
    if share < limits.RECOMPILE_FRAC:
        return None
    stall = measure_stalls(
        case, case.steps.interruptions.of_kind("recompile"), read_column(case.steps.rows, "duration_ns")
    )
    reason = f" The most frequent reason: {again.reason}." if again.reason else ""
    return Finding(
        describe(case, "recompiles", again=again, share=share, reason=reason),
        severity="medium",
        what_if=shorten_step(case, "stalls", stall * case.steps.mean_ns, 1.0) if stall else None,
        doubt_frac=0.15,
        least_frac=0.7,  # a dynamic shape may be slower, and padding adds computation
    )


def _judge_periodic_stall(case: Case) -> Finding | None:
    """Every n-th step takes much longer, and nothing that is known explains it."""
    regular = np.flatnonzero(case.steps.selection.regular)
    durations = case.steps.selection.duration_ns[regular]
    middle = float(np.median(durations))
    stalls = case.steps.stalled
    if not limits.MIN_STALLS <= len(stalls) <= limits.MOST_STALLS_FRAC * len(regular):
        return None
    numbers = case.steps.selection.step[stalls]
    period = _find_period(numbers)
    excess_ns = float((case.steps.selection.duration_ns[stalls] - middle).sum()) / len(regular)
    gc_ns = float(read_column(case.steps.rows, "gc_ns")[stalls].sum()) / len(regular)
    if not _are_alike(np.asarray(case.steps.selection.duration_ns[stalls] - middle, np.float64)):
        return None
    if period is None or excess_ns < limits.STALL_FRAC * case.steps.mean_ns or gc_ns > excess_ns / 2:
        return None
    phase = _find_phase(case, stalls, regular)
    if phase == "data_wait":  # late batches: the rules on loading explain these
        return None
    if _is_known(case, excess_ns * len(regular)):
        return None
    each_ns = excess_ns * len(regular) / len(stalls)
    culprit = _find_culprit(case, phase, excess_ns)
    first = Evidence("steps", f"step={int(numbers[0])}", f"Step {int(numbers[0])}, the first of them")
    return Finding(
        describe(
            case,
            "periodic_stall.named" if culprit is not None else "periodic_stall",
            period=period,
            rarer=period * 4,
            each_ns=each_ns,
            stalled=len(stalls),
            steps=len(regular),
            phase=phase,
            share=excess_ns / case.steps.mean_ns,
            cause=f" The cause is {cause}." if (cause := case.steps.stall_cause) else "",
            **({} if culprit is None else name_parts(culprit)),
        ),
        evidence=(first,) if culprit is None else (first, FUNCTIONS),
        what_if=shorten_step(case, "stalls", excess_ns, 0.75),
        doubt_frac=0.15,
        least_frac=0.8,
    )


def _find_culprit(case: Case, phase: str, excess_ns: float) -> NamedFunction | None:
    """Return the function that takes most of the phase; None if it is not certain that this function runs in the
    stalls.

    The stalls (`excess_ns` per step) must be most of the phase. Functions are known only for the whole phase. A
    function that takes more of the phase than all steps without stalls must run in the stalls.
    """
    stalled_frac = min(excess_ns / max(case.steps.phases_ns[phase], 1.0), 1.0)
    culprit = find_dominant(find_in_phases(case, phase))
    in_stalls = culprit is not None and culprit.low_frac > 1.0 - stalled_frac
    return culprit if in_stalls and stalled_frac >= DOMINANT_FRAC else None


def _is_known(case: Case, excess_ns: float) -> bool:
    """Return whether the stalls are recorded checkpoints or recompilations, which other rules judge better."""
    kinds: tuple[Kind, ...] = ("checkpoint", "recompile")
    return any(
        float(case.steps.interruptions.of_kind(kind).duration_ns.sum()) >= limits.EXPLAINED_FRAC * excess_ns
        for kind in kinds
    )


def _find_period(numbers: Ints) -> int | None:
    distances = np.diff(numbers)
    middle = float(np.median(distances))
    # A stall may be missed or hidden by another stall. Distances that are whole multiples therefore count as regular.
    multiples = np.maximum(1, np.round(distances / middle)) * middle
    even = np.abs(distances - multiples) <= max(limits.EVEN_DISTANCE_FRAC * middle, 0.5)
    return round(middle) if middle >= 3 and even.mean() >= 0.75 else None


def _are_alike(excess: Floats) -> bool:
    """Return whether most stalls are about equally long. Disturbances from outside may be evenly spaced by chance, but
    differ in length."""
    middle = float(np.median(excess))
    alike = (excess * limits.ALIKE_FACTOR >= middle) & (excess <= middle * limits.ALIKE_FACTOR)
    return float(alike.mean()) >= 0.75


def _find_phase(case: Case, stalls: Ints, regular: Ints) -> str:
    growth = {}
    for name in PHASE_NAMES:
        values = read_column(case.steps.rows, f"{name}_ns")
        growth[name] = float(values[stalls].mean() - np.median(values[regular]))
    return max(growth, key=lambda name: growth[name])


def _judge_gc_pauses(case: Case) -> Finding | None:
    """Python's garbage collector runs during the steps, by itself or called by the loop."""
    # Garbage collection during a compilation vanishes with the compilation.
    compiles = sum_in_steps(case, case.steps.interruptions.of_kind("compile", "recompile")) > 0
    every = np.where(compiles, 0, read_column(case.steps.rows, "gc_ns"))
    gc_ns = every[case.steps.selection.kept]
    mean = float(gc_ns.mean())
    if mean < limits.GC_FRAC * case.steps.mean_ns or int((gc_ns > 0).sum()) < limits.MIN_COLLECTED:
        return None
    outside_ns = min(measure_garbage_outside(case), mean)
    place = find_in_phases(case, *OUTSIDE) if outside_ns >= mean / 2 else None
    culprit = find_dominant(place)
    return Finding(
        describe(
            case,
            "gc_pauses" if culprit is None else "gc_pauses.named",
            mean=mean,
            share=mean / case.steps.mean_ns,
            steps=int((gc_ns > 0).sum()),
            all_steps=len(gc_ns),
            longest_ns=int(gc_ns.max()),
            functions=say_functions(place, "this time"),
            culprit="" if culprit is None else spell_call(culprit),
        ),
        what_if=_stop_collecting(case, every, outside_ns),
        doubt_frac=0.1,
    )


def _stop_collecting(case: Case, gc_ns: Ints, outside_ns: float) -> WhatIf:
    """Return the what-if without garbage collections. `outside_ns` is their time in gap and tail of the mean step.

    Less work in gap and tail removes the same collections, so both changes together save them only once. The same is
    true of collections while the recorded thread makes its batches.
    """
    mean_ns = float(gc_ns[case.steps.selection.kept].mean())
    waiting_ns = min(_measure_waiting(case, gc_ns) * mean_ns, mean_ns - outside_ns)
    cold_ns = _measure_cold(case, gc_ns, mean_ns)
    found = shorten_step(case, "gc", mean_ns - waiting_ns + cold_ns, 1.0)
    inside_ns = mean_ns - outside_ns - waiting_ns
    touches = {"outside": outside_ns, "gc": inside_ns, "data_wait": waiting_ns, "caches": cold_ns}
    return replace(found, change=_shorten_batches(case, found.change, waiting_ns), touches=touches)


def _measure_waiting(case: Case, gc_ns: Ints) -> float:
    """Return the share of the time of collections that lies in the wait for data of a loader without workers.

    The share is the growth of the wait per time of the collections (least squares); 0 if this time is constant.
    """
    loop, regular = case.loading.loop, case.steps.selection.regular
    if loop.model.workers or not loop.model.batches:
        return 0.0
    collected, waited = gc_ns[regular].astype(float), read_column(case.steps.rows, "data_wait_ns")[regular]
    apart = collected - collected.mean()
    spread = float(apart @ apart)
    return float(np.clip(apart @ waited / spread, 0.0, 1.0)) if spread else 0.0


def _measure_cold(case: Case, gc_ns: Ints, mean_ns: float) -> float:
    """Return the ns by which a step after a collection is longer, because caches are cold, as part of the mean step. 0
    if every step follows a collection, or none does."""
    regular = np.flatnonzero(case.steps.selection.regular)
    after = gc_ns[np.maximum(regular - 1, 0)] > 0
    if not after.any() or after.all():
        return 0.0
    durations = case.steps.selection.duration_ns[regular] - gc_ns[regular]
    longer = float(np.median(durations[after]) - np.median(durations[~after]))
    return float(np.clip(longer * after.mean(), 0.0, limits.COLD_FRAC * mean_ns))


def _shorten_batches(
    case: Case, change: Callable[[LoopModel], LoopModel], saved_ns: float
) -> Callable[[LoopModel], LoopModel]:
    wait_ns = case.loading.wait_ns
    kept = max(1.0 - saved_ns / wait_ns, 0.0) if wait_ns > 0 else 1.0

    def shorten(model: LoopModel) -> LoopModel:
        batches = tuple(Job(job.wall_ns * kept, job.cores) for job in model.batches)
        return change(replace(model, batches=batches))

    return shorten


RULES = (
    Rule("checkpoint_stall", knob="stalls", effort="code", judge=_judge_checkpoint_stall),
    Rule("recompiles", knob="stalls", effort="code", judge=_judge_recompiles),
    Rule("periodic_stall", knob="stalls", effort="code", judge=_judge_periodic_stall),
    Rule("gc_pauses", knob="gc", effort="code", judge=_judge_gc_pauses),
)
