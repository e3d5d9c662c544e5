"""Checkpoints, seen as they are saved or marked by the user, take a noticeable part of the time."""

from __future__ import annotations

from profiler_server.diagnosis.limits import BACKGROUND_SAVED_FRAC, CHECKPOINT_FRAC
from profiler_server.diagnosis.what_if import measure_stalls, shorten_step, sum_recorded_ns
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Evidence
from profiler_server.facts.steps import HeldSum, read_column, sum_interruptions
from profiler_server.format import format_duration, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
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


RULE = Rule("checkpoint_stall", knob="stalls", effort="code", judge=_judge)
