"""How step times go on through a run."""

from __future__ import annotations

import numpy as np

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits.course import (
    DRIFT_FRAC,
    DRIFT_PARTS,
    DRIFT_RISES,
    DRIFT_STEPS,
    GROWN_BYTES,
    GROWN_FRAC,
    JITTER_FRAC,
    SHIFT_FILLS,
    SHIFT_FRAC,
    SHIFT_HELD_FRAC,
    SHIFT_STEPS,
)
from profiler_server.diagnosis.limits.facts import MIN_STEPS, NOISY_FRAC, QUEUED_FRAC, SHIFT_CHANCE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Floats
from profiler_server.facts.results import Abstention, Evidence
from profiler_server.facts.steps import Ints, read_column
from profiler_server.format import form_plural, format_bytes, format_duration, format_share


def _judge_drift(case: Case) -> Finding | Abstention | None:
    """Steps become longer as the run goes on."""
    regular = np.flatnonzero(case.steps.selection.regular)
    if len(regular) < DRIFT_STEPS:
        return None
    parts = np.array_split(regular, DRIFT_PARTS)
    levels = np.array([np.median(case.steps.selection.duration_ns[part]) for part in parts])
    if case.steps.shift is not None:  # one step at which all became longer is no growth
        return None
    drift = float(levels[-1] / levels[0] - 1.0) if levels[0] else 0.0
    rises = int((np.diff(levels) > 0).sum())
    if drift < DRIFT_FRAC or rises < DRIFT_RISES:
        return None
    if case.host.load is None:
        return Abstention(
            "drift", "what else ran on the host while steps grew", "Record with Profiler(resources=True)."
        )
    if case.host.others_frac >= NOISY_FRAC or case.host.got_busier:
        return None
    growth = case.steps.find_growth(parts[0], parts[-1])
    phase = max(growth, key=lambda name: growth[name])
    return Finding(
        title="Steps become longer during the run",
        measured=f"The usual step grew from {format_duration(levels[0])} to {format_duration(levels[-1])} "
        f"(+{format_share(drift)}), most of it in {PHASE_LABELS[phase].lower()}.",
        threshold=f"The last sixth of the steps is longer than the first by more than {format_share(DRIFT_FRAC)}, it rises "
        "throughout, and the host did not get busier.",
        advice="Look for what accumulates: a list of losses that keep their graph, a growing log or cache, fragmented memory. A "
        "processor that gets hot slows down, too.",
        change="losses.append(loss.item())  # not loss itself, which keeps its graph alive",
        fix="steps as short as at the start",
        severity="low",
    )


def _judge_shift(case: Case) -> Finding | None:
    """From one step on, and for good, steps take longer."""
    regular = np.flatnonzero(case.steps.selection.regular)
    if len(regular) < SHIFT_STEPS:
        return None
    found = case.steps.shift
    if found is None or found.change_frac < SHIFT_FRAC or found.held_frac < SHIFT_HELD_FRAC:
        return None
    before, after = regular[: found.at], regular[found.at :]
    if found.at < SHIFT_FILLS * _count_ahead(case) or _takes_other_batches(case, before, after):
        return None
    growth = case.steps.find_growth(before, after)
    phase = max(growth, key=lambda name: growth[name])
    since = int(case.steps.selection.step[after[0]])
    return Finding(
        title=f"Steps take longer since step {since:,}",
        measured=f"Since step {since:,} the usual {case.steps.noun} takes {format_duration(found.after_ns)} instead of "
        f"{format_duration(found.before_ns)} (+{format_share(found.change_frac)}), most of it in "
        f"{PHASE_LABELS[phase].lower()}.",
        threshold=f"It grows by {format_share(SHIFT_FRAC)} or more and stays so, at one step rather than steadily; of "
        f"{1 / SHIFT_CHANCE:,.0f} runs without a change one would look like it.",
        advice=f"Look for what happened then. {_advise(case, phase)}",
        change="uptime; nvidia-smi -q -d CLOCK,PERFORMANCE  # while it is slow: what else runs, and at which clock",
        fix=f"steps as short as before step {since:,}",
        severity="low",
    )


def _count_ahead(case: Case) -> int:
    """Return how many batches the loader makes ahead."""
    loader = case.loading.loader
    return loader.num_workers * (loader.prefetch_factor or 0) if loader is not None else 0


def _takes_other_batches(case: Case, before: Ints, after: Ints) -> bool:
    """Say whether steps do other work after the change: batches of another size, or another number of them."""
    columns = ("samples", "forwards", "backwards")
    values = (read_column(case.steps.rows, name) for name in columns)
    return any(np.median(counts[before]) != np.median(counts[after]) for counts in values)


def _advise(case: Case, phase: str) -> str:
    if case.host.got_busier:
        return "Other programs used more of the processors at the end of the run than at its start."
    if phase == "communication":
        return "Another rank may have become slow: the Ranks page says which."
    if phase == "data_wait":
        return "Other files, a storage or network that others use since, workers that lost their processors."
    return "A processor or device that got hot and lowered its clock, a program that was started beside the run."


def _judge_jitter(case: Case) -> Finding | None:
    """Steps vary much, and nothing that is recorded explains it (a remark, no advice)."""
    load = case.host.load
    busy = case.host.others_frac >= NOISY_FRAC or (load is not None and (load.queued_frac or 0.0) >= QUEUED_FRAC)
    own_ns = _read_own(case)
    if busy or case.loading.is_input_bound or len(own_ns) < MIN_STEPS:
        return None
    low, middle, high = np.percentile(own_ns, (10, 50, 90))
    if high - low < JITTER_FRAC * middle:
        return None
    return Finding(
        title=f"{form_plural(case.steps.noun).capitalize()} vary much",
        measured=f"Without waiting for data and without pauses that are known, a {case.steps.noun} takes {format_duration(middle)} "
        f"in the middle, a tenth of them less than {format_duration(low)} and a tenth more than {format_duration(high)}.",
        threshold=f"The tenths lie apart by {JITTER_FRAC:g} times the middle or more, and no other program disturbs.",
        advice="Nothing that is recorded explains it. Batches of unequal size do this, and so does a machine that changes its "
        "clock. Compare runs by many steps.",
        change='with collector.record("this part"):  # around parts of the step, to see which of them varies',
        fix="even steps",
    )


def _read_own(case: Case) -> Floats:
    """Return regular steps without their wait for data and garbage collection, and without those that something held."""
    rows, selection = case.steps.rows, case.steps.selection
    known = read_column(rows, "data_wait_ns") + read_column(rows, "gc_ns")
    held = case.steps.interruptions.of_kind("checkpoint", "validation", "compile", "recompile").start_ns
    starts = read_column(rows, "start_ns")
    ends = starts + selection.duration_ns
    free = np.searchsorted(held, starts) == np.searchsorted(held, ends)
    own_ns: Floats = (selection.duration_ns - known)[selection.regular & free].astype(np.float64)
    return own_ns


_NS_PER_HOUR = 3_600_000_000_000


def _judge_memory_creep(case: Case) -> Finding | Abstention | None:
    """The memory of the training process grows for as long as the run goes on."""
    growth = case.host.load.growth if case.host.load is not None else None
    if growth is None:
        return None
    grown = growth.grown_bytes
    if grown < max(GROWN_FRAC * growth.levels_bytes[0], GROWN_BYTES) or not growth.is_steady:
        return None
    per_hour = grown / growth.elapsed_ns * _NS_PER_HOUR
    return Finding(
        title="The memory of the training process keeps growing",
        measured=f"It grew from {format_bytes(growth.levels_bytes[0])} to {format_bytes(growth.levels_bytes[-1])} and in "
        f"every sixth of the run; at this pace it takes {format_bytes(per_hour)} more every hour.",
        threshold=f"At least {format_share(GROWN_FRAC)} and {format_bytes(GROWN_BYTES)} more than after the first fifth of the "
        "run, growing in every sixth of the rest.",
        advice="Something keeps references that it should drop, and the run ends when memory runs out: losses that hold their "
        "graph, outputs that are collected, a log or a cache without a limit.",
        change="losses.append(loss.item())  # not loss itself, which keeps its graph alive",
        fix="memory that stays level",
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        severity="medium",
    )


RULES = (
    Rule("drift", knob="drift", effort="code", judge=_judge_drift),
    Rule("shift", knob="shift", effort="code", judge=_judge_shift),
    Rule("jitter", knob="jitter", effort="semantics", judge=_judge_jitter),
    Rule("memory_creep", knob="memory", effort="code", judge=_judge_memory_creep),
)
