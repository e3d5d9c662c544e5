"""What holds some steps up: saving, compiling, and what comes every so many steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector.format.phases import PHASE_LABELS, PHASE_NAMES
from profiler_server.diagnosis.limits.facts import DOMINANT_FRAC
from profiler_server.diagnosis.limits.thread import (
    ALIKE_FACTOR,
    BACKGROUND_SAVED_FRAC,
    CHECKPOINT_FRAC,
    EVEN_DISTANCE_FRAC,
    EXPLAINED_FRAC,
    MIN_RECOMPILES,
    MIN_STALLS,
    MOST_STALLS_FRAC,
    RECOMPILE_FRAC,
    STALL_FRAC,
)
from profiler_server.diagnosis.what_if import measure_stalls, shorten_step, sum_recorded_ns
from profiler_server.diagnosis.wording import find_dominant, find_in_phases, name_call, spell_function
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.results import STEPS_PAGE, Evidence
from profiler_server.facts.steps import (
    HeldSum,
    Ints,
    Kind,
    NamedFunction,
    read_column,
    sum_interruptions,
)
from profiler_server.format import format_duration, format_number_of, format_share


def _judge_checkpoint_stall(case: Case) -> Finding | None:
    """Checkpoints, seen as they are saved or marked by the user, take a noticeable part of the time."""
    saves = sum_interruptions(case.steps.interruptions.of_kind("checkpoint"))
    if not saves:
        return None
    most = saves[0]
    share = most.total_ns / sum_recorded_ns(case)
    if share < CHECKPOINT_FRAC:
        return None
    # What flushes and renames around a save lies outside of forward, backward and update as well.
    outside = read_column(case.steps.rows, "gap_ns") + read_column(case.steps.rows, "tail_ns")
    stall = measure_stalls(case, case.steps.interruptions.of_kind("checkpoint"), outside)
    return Finding(
        title="Checkpoints hold up training",
        measured=f"Checkpoints ({most.held.name}) took {format_duration(most.total_ns)} in all, "
        f"{format_share(share)} of the recorded "
        f"time: {format_number_of(most.count, 'time')}, {format_duration(most.longest_ns)} the longest.",
        threshold=f"Saving takes at least {format_share(CHECKPOINT_FRAC)} of the recorded time.",
        advice="Save less often, or write in another thread while training goes on.",
        change="from torch.distributed.checkpoint import async_save\n\nfuture = async_save(state, checkpoint_id=path)",
        fix="saving in the background",
        evidence=(*_find_step(case, most), Evidence("timeline", f"q={most.held.name}", "On the timeline")),
        what_if=shorten_step(case, "stalls", stall * case.steps.mean_ns, BACKGROUND_SAVED_FRAC),
        tier="A",
        gain_range=(0.6, 1.25),
    )


def _find_step(case: Case, most: HeldSum) -> tuple[Evidence, ...]:
    """Point at the step that the longest one lies in."""
    starts = read_column(case.steps.rows, "start_ns")
    at = int(starts.searchsorted(most.longest_at_ns, side="right")) - 1
    if at < 0:
        return (STEPS_PAGE,)
    step = int(case.steps.selection.step[at])
    return (Evidence("steps", f"step={step}", f"Step {step}, which holds the longest"),)


def _judge_recompiles(case: Case) -> Finding | None:
    """torch.compile compiles the same function again and again."""
    again = case.steps.compiles.get("recompile")
    if again is None or again.count < MIN_RECOMPILES:
        return None
    share = again.duration_ns / max(float(read_column(case.steps.rows, "duration_ns").sum()), 1.0)
    if share < RECOMPILE_FRAC:
        return None
    stall = measure_stalls(
        case, case.steps.interruptions.of_kind("recompile"), read_column(case.steps.rows, "duration_ns")
    )
    reason = f" The most frequent reason: {again.reason}." if again.reason else ""
    return Finding(
        title="Functions are compiled again during training",
        measured=f"{format_number_of(again.count, 'recompilation')} took {format_duration(again.duration_ns)} in all "
        f"({format_share(share)} of the steps' time), most often of {again.function}.{reason}",
        threshold=f"{MIN_RECOMPILES} recompilations or more that take at least {format_share(RECOMPILE_FRAC)} of the steps' time.",
        advice="Keep what the compiler checks the same from step to step: pad batches to a few fixed sizes or drop the last "
        "one, mark sizes that change as dynamic, and pass numbers that change as tensors.",
        change="DataLoader(dataset, drop_last=True)\n"
        "torch._dynamo.mark_dynamic(batch, 0)  # or torch.compile(model, dynamic=True)",
        fix="each function compiled once",
        severity="medium",
        what_if=shorten_step(case, "stalls", stall * case.steps.mean_ns, 1.0) if stall else None,
        tier="A",
        gain_range=(0.7, 1.05),  # a dynamic shape may run slower, and padding computes more
    )


def _judge_periodic_stall(case: Case) -> Finding | None:
    """Every n-th step takes much longer, and nothing that is known explains it."""
    regular = np.flatnonzero(case.steps.selection.regular)
    durations = case.steps.selection.duration_ns[regular]
    middle = float(np.median(durations))
    stalls = case.steps.stalled
    if not MIN_STALLS <= len(stalls) <= MOST_STALLS_FRAC * len(regular):
        return None
    numbers = case.steps.selection.step[stalls]
    period = _find_period(numbers)
    excess_ns = float((case.steps.selection.duration_ns[stalls] - middle).sum()) / len(regular)
    gc_ns = float(read_column(case.steps.rows, "gc_ns")[stalls].sum()) / len(regular)
    if not _are_alike(np.asarray(case.steps.selection.duration_ns[stalls] - middle, np.float64)):
        return None
    if period is None or excess_ns < STALL_FRAC * case.steps.mean_ns or gc_ns > excess_ns / 2:
        return None
    phase = _find_phase(case, stalls, regular)
    if phase == "data_wait":  # late batches: the rules about loading know more
        return None
    if _is_known(case, excess_ns * len(regular)):
        return None
    each_ns = excess_ns * len(regular) / len(stalls)
    found = Finding(
        title=f"Every {period} steps one takes {format_duration(each_ns)} longer",
        measured=f"{len(stalls)} of {len(regular)} steps, one in {period}, are longer by {format_duration(each_ns)}, "
        f"most of it in {PHASE_LABELS[phase].lower()}: {format_share(excess_ns / case.steps.mean_ns)} of the steps' time."
        f"{f' The cause is {cause}.' if (cause := case.steps.stall_cause) else ''}",
        threshold=f"{MIN_STALLS} stalls or more at even distances that cost at least {format_share(STALL_FRAC)} of the steps' time.",
        advice=f"Look for what the loop does every {period} steps: a checkpoint, a log flush, metrics, an evaluation. "
        "Do it less often or in another thread.",
        change=f"if step % {period * 4} == 0:  # was every {period} steps\n    save_checkpoint()",
        fix=f"the work of every {period}th step four times less often",
        assumption="that work is done a quarter as often",
        evidence=(Evidence("steps", f"step={int(numbers[0])}", f"Step {int(numbers[0])}, the first of them"),),
        what_if=shorten_step(case, "stalls", excess_ns, 0.75),
        tier="A",
        gain_range=(0.8, 1.33),
    )
    culprit = _find_culprit(case, phase, excess_ns)
    return found if culprit is None else _blame_in_stalls(found, culprit, period)


def _find_culprit(case: Case, phase: str, excess_ns: float) -> NamedFunction | None:
    """Return the function that most of the phase goes to, if the stalls are most of the phase, and it is in the stalls.

    Functions are known of the whole phase: one that takes more of it than all other steps do runs in the stalls.
    """
    stalled_frac = min(excess_ns / max(case.steps.phases_ns[phase], 1.0), 1.0)
    culprit = find_dominant(find_in_phases(case, phase))
    in_stalls = culprit is not None and culprit.low_frac > 1.0 - stalled_frac
    return culprit if in_stalls and stalled_frac >= DOMINANT_FRAC else None


def _blame_in_stalls(found: Finding, culprit: NamedFunction, period: int) -> Finding:
    call = name_call(culprit)
    code = "..." if culprit.is_own_line else call
    return replace(
        found,
        title=f"{found.title}: {call}",
        advice=f"Most of it is {spell_function(culprit)}: do it less often, or in another thread.",
        change=f"if step % {period * 4} == 0:  # was every {period} steps\n    {code}  # {culprit.place}",
        fix=f"{call} four times less often",
        evidence=(*found.evidence, Evidence("steps", "", "The functions of each phase")),
    )


def _is_known(case: Case, excess_ns: float) -> bool:
    """Say whether the stalls are checkpoints or recompilations that were seen: the rules about those know more."""
    kinds: tuple[Kind, ...] = ("checkpoint", "recompile")
    return any(
        float(case.steps.interruptions.of_kind(kind).duration_ns.sum()) >= EXPLAINED_FRAC * excess_ns for kind in kinds
    )


def _find_period(numbers: Ints) -> int | None:
    distances = np.diff(numbers)
    middle = float(np.median(distances))
    # A stall can be missed or hidden in another one: distances that are whole multiples count as even.
    multiples = np.maximum(1, np.round(distances / middle)) * middle
    even = np.abs(distances - multiples) <= max(EVEN_DISTANCE_FRAC * middle, 0.5)
    return round(middle) if middle >= 3 and even.mean() >= 0.75 else None


def _are_alike(excess: Floats) -> bool:
    """Say whether most stalls are about as long: what disturbs a run from outside comes at even distances by chance."""
    middle = float(np.median(excess))
    alike = (excess * ALIKE_FACTOR >= middle) & (excess <= middle * ALIKE_FACTOR)
    return float(alike.mean()) >= 0.75


def _find_phase(case: Case, stalls: Ints, regular: Ints) -> str:
    growth = {}
    for name in PHASE_NAMES:
        values = read_column(case.steps.rows, f"{name}_ns")
        growth[name] = float(values[stalls].mean() - np.median(values[regular]))
    return max(growth, key=lambda name: growth[name])


RULES = (
    Rule("checkpoint_stall", knob="stalls", effort="code", judge=_judge_checkpoint_stall),
    Rule("recompiles", knob="stalls", effort="code", judge=_judge_recompiles),
    Rule("periodic_stall", knob="stalls", effort="code", judge=_judge_periodic_stall),
)
