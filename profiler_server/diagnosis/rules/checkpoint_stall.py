"""Checkpoints, seen as they are saved or marked by the user, take a noticeable part of the time."""

from __future__ import annotations

import numpy as np

from collector.format.steps import read_integers
from profiler_server.analysis.results import Evidence
from profiler_server.analysis.steps.interruptions import HeldSum, sum_interruptions
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import BACKGROUND_SAVED_FRAC, CHECKPOINT_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_duration, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    saves = sum_interruptions(case.steps.interruptions.of_kind("checkpoint"))
    if not saves:
        return None
    most = saves[0]
    steps_ns = float(read_integers(case.steps.rows, "duration_ns").sum())
    share = most.total_ns / steps_ns
    if share < CHECKPOINT_FRAC:
        return None
    return Finding(
        title="Checkpoints hold up training",
        measured=f"Checkpoints ({most.held.name}) took {format_duration(most.total_ns)} in all, "
        f"{format_share(share)} of the steps' "
        f"time: {format_number_of(most.count, 'time')}, {format_duration(most.longest_ns)} the longest.",
        threshold=f"Saving takes at least {format_share(CHECKPOINT_FRAC)} of the steps' time.",
        advice="Save less often, or write in another thread while training goes on.",
        change="from torch.distributed.checkpoint import async_save\n\nfuture = async_save(state, checkpoint_id=path)",
        fix="saving in the background",
        evidence=(*_find_step(case, most), Evidence("timeline", f"q={most.held.name}", "On the timeline")),
        what_if=shorten_step(case, "stalls", _measure_stall(case, most) * case.steps.mean_ns, BACKGROUND_SAVED_FRAC),
        tier="A",
        gain_range=(0.6, 1.25),
    )


def _measure_stall(case: Case, most: HeldSum) -> float:
    """Return the share of the steps' time that goes with the saves, flushing and renaming around them included.

    In a step that saves, what lies outside of forward, backward and update is longer than in the median of the others:
    that much goes with the save, at least the save itself.
    """
    rows, saves = case.steps.rows, case.steps.interruptions.of_kind("checkpoint")
    duration = read_integers(rows, "duration_ns")
    at = read_integers(rows, "start_ns").searchsorted(saves.start_ns, side="right") - 1
    inside = at >= 0
    saving = np.bincount(at[inside], saves.duration_ns[inside], len(duration)) > 0
    outside = read_integers(rows, "gap_ns") + read_integers(rows, "tail_ns")
    usual = float(np.median(outside[~saving])) if not saving.all() else float(outside.min())
    around = float(np.maximum(outside[saving] - usual, 0.0).sum())
    return min(max(around, float(most.total_ns)) / max(float(duration.sum()), 1.0), 1.0)


def _find_step(case: Case, most: HeldSum) -> tuple[Evidence, ...]:
    """Point at the step that the longest one lies in."""
    starts = read_integers(case.steps.rows, "start_ns")
    at = int(starts.searchsorted(most.longest_at_ns, side="right")) - 1
    if at < 0:
        return (STEPS_PAGE,)
    step = int(case.steps.selection.step[at])
    return (Evidence("steps", f"step={step}", f"Step {step}, which holds the longest"),)


RULE = Rule("checkpoint_stall", knob="stalls", effort="code", judge=_judge)
