"""Every n-th step takes much longer, and nothing that is known explains it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector.format.phases import PHASE_LABELS, PHASE_NAMES
from profiler_server.diagnosis.limits import (
    ALIKE_FACTOR,
    EVEN_DISTANCE_FRAC,
    EXPLAINED_FRAC,
    MIN_STALLS,
    MOST_STALLS_FRAC,
    STALL_FRAC,
)
from profiler_server.diagnosis.named import find_dominant, find_in_phases, name_call, spell_function
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.results import Evidence
from profiler_server.facts.steps import DOMINANT_FRAC, Ints, Kind, NamedFunction, read_column
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
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
    return found if culprit is None else _blame(found, culprit, period)


def _find_culprit(case: Case, phase: str, excess_ns: float) -> NamedFunction | None:
    """Return the function that most of the phase goes to, if the stalls are most of the phase, and it is in the stalls.

    Functions are known of the whole phase: one that takes more of it than all other steps do runs in the stalls.
    """
    stalled_frac = min(excess_ns / max(case.steps.phases_ns[phase], 1.0), 1.0)
    culprit = find_dominant(find_in_phases(case, phase))
    in_stalls = culprit is not None and culprit.low_frac > 1.0 - stalled_frac
    return culprit if in_stalls and stalled_frac >= DOMINANT_FRAC else None


def _blame(found: Finding, culprit: NamedFunction, period: int) -> Finding:
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


RULE = Rule("periodic_stall", knob="stalls", effort="code", judge=_judge)
