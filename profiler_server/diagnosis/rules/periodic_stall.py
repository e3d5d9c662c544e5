"""Every n-th step takes much longer, and nothing that is known explains it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.format.steps import find_stall_limit, read_integers
from profiler_server.analysis.results import Evidence
from profiler_server.analysis.steps.interruptions import StepCauses
from profiler_server.diagnosis.case import Case, Finding, Rule, shorten_step
from profiler_server.format import format_duration, format_share

_SHARE = 0.05
_MIN_STALLS = 3
_MOST_STALLS_FRAC = 0.34
_REGULARITY = 0.2
_MOST_LOOKED_AT = 20


def _judge(case: Case) -> Finding | None:
    regular = np.flatnonzero(case.selection.regular)
    durations = case.selection.duration_ns[regular]
    middle = float(np.median(durations))
    stalls = regular[durations > find_stall_limit(durations)]
    if not _MIN_STALLS <= len(stalls) <= _MOST_STALLS_FRAC * len(regular):
        return None
    numbers = case.selection.step[stalls]
    period = _find_period(numbers)
    excess_ns = float((case.selection.duration_ns[stalls] - middle).sum()) / len(regular)
    gc_ns = float(read_integers(case.train, "gc_ns")[stalls].sum()) / len(regular)
    if period is None or excess_ns < _SHARE * case.step_ns or gc_ns > excess_ns / 2:
        return None
    phase = _find_phase(case, stalls, regular)
    if phase == "data_wait":  # late batches: the rules about loading know more
        return None
    each_ns = excess_ns * len(regular) / len(stalls)
    return Finding(
        title=f"Every {period} steps one takes {format_duration(each_ns)} longer",
        measured=f"{len(stalls)} of {len(regular)} steps, one in {period}, are longer by {format_duration(each_ns)}, "
        f"most of it in {phase.replace('_', ' ')}: {format_share(excess_ns / case.step_ns)} of the time."
        f"{_name_cause(case, stalls, middle)}",
        threshold=f"Three stalls or more at even distance that cost over {format_share(_SHARE)} of the time.",
        advice=f"Look for what the loop does every {period} steps: a checkpoint, a log flush, metrics, an evaluation. "
        "Do it less often or in another thread.",
        change=f"if step % {period * 4} == 0:  # was every {period} steps\n    save_checkpoint()",
        fix=f"the work of every {period}th step four times less often",
        evidence=(Evidence("steps", f"step={int(numbers[0])}", f"Step {int(numbers[0])}, the first of them"),),
        what_if=shorten_step(0.75 * excess_ns, case.loop.fetches),
        tier="A",
        gain_range=(0.8, 1.33),
    )


def _name_cause(case: Case, stalls: Ints, usual_ns: float) -> str:
    """Say what held most of the stalled steps, where that has a name."""
    starts, durations = read_integers(case.train, "start_ns"), case.selection.duration_ns
    causes = StepCauses(case.interruptions, starts, starts + durations, case.selection.kept)
    found = [causes.find(int(at), float(durations[at]) - usual_ns) for at in stalls[:_MOST_LOOKED_AT]]
    named = Counter(entry[0].label for entry in found if entry is not None)
    if not named:
        return ""
    label, count = named.most_common(1)[0]
    return f" What takes it: {label}." if 2 * count > len(found) else ""


def _find_period(numbers: Ints) -> int | None:
    distances = np.diff(numbers)
    middle = float(np.median(distances))
    # A stall can be missed or hidden in another one: distances that are whole multiples count as even.
    multiples = np.maximum(1, np.round(distances / middle)) * middle
    even = np.abs(distances - multiples) <= max(_REGULARITY * middle, 0.5)
    return round(middle) if middle >= 3 and even.mean() >= 0.75 else None


def _find_phase(case: Case, stalls: Ints, regular: Ints) -> str:
    growth = {}
    for name in PHASE_NAMES:
        values = read_integers(case.train, f"{name}_ns")
        growth[name] = float(values[stalls].mean() - np.median(values[regular]))
    return max(growth, key=lambda name: growth[name])


RULE = Rule("periodic_stall", knob="stalls", effort="code", judge=_judge)
