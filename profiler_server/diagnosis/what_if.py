"""What-ifs: changes to the loop model or to a replayed window, for which the diagnosis predicts a step time.

The times of the model may be scaled to a host without other load. So a change saves a share of the times in the model,
never measured nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from collector.estimating.model import Job, LoopModel
from collector.format.phases import COMPUTING, OUTSIDE, PHASES, WAITING
from profiler_server.diagnosis.limits.facts import (
    CERTAIN_LOSS,
    CONTENTION_WEIGHT,
    MIN_GAIN_FRAC,
    MIN_GAIN_NS,
    MOST_OF_DELAY,
)
from profiler_server.facts.case import Abstention, Case, Evidence, Finding, WhatIf
from profiler_server.facts.loading import BatchTimes, Floats
from profiler_server.facts.machine import Gain, Sighting
from profiler_server.facts.steps import Interruptions, Ints, NamedFunction, Part, read_column
from profiler_server.format import format_share
from profiler_server.words.phrases import find_dominant, name_call, spell_function

TIMELINE = Evidence("timeline", "", "Host and device side by side")
_COMPUTED_PARTS = ("anomaly", "outside", "stalls", "gc", "python", "caches")
"""Pieces of a step in which the recorded thread computes outside operators."""
_PHASES_OF = {
    "outside": OUTSIDE,
    "communication": ("communication", "backward"),
    "caches": COMPUTING,
}
"""The phases that contain a piece of the step that is no phase itself."""
_HOST_PHASES = frozenset({"data_wait", *OUTSIDE})
"""Phases whose length is meaningful with a device. Other phases end before the work that they launched."""


def feed(case: Case, change: Callable[[LoopModel], LoopModel], spared_ns: float = 0.0) -> WhatIf:
    """Return the what-if of a change to the making of batches. It saves at most the data wait and `spared_ns`."""
    spared = {"processors": spared_ns} if spared_ns else {}
    return WhatIf(change, {"data_wait": case.data_wait_ns, **spared}, feeds=True)


def set_workers(case: Case, workers: int) -> WhatIf:
    return feed(case, lambda model: replace(model, workers=workers, prefetch=max(model.prefetch, 2)))


def scale_stages(case: Case, batches: BatchTimes, stages: tuple[str, ...], factor: float) -> WhatIf:
    """Return the what-if of stages that take `factor` times their recorded time in every batch."""
    taken = sum(batches.stages_ns[stage] for stage in stages if stage in batches.stages_ns) / batches.total_ns

    def change(model: LoopModel) -> LoopModel:
        kept = 1.0 - (1.0 - factor) * taken[-len(model.batches) :]
        jobs = zip(model.batches, kept, strict=True)
        batches = tuple(Job(job.wall_ns * float(part), job.cores) for job, part in jobs)
        receive = model.receive.scale(factor) if "send" in stages else model.receive  # what is packed is unpacked
        return replace(model, batches=batches, receive=receive)

    found = feed(case, change, case.loading.choices.spared_ns)
    # Without workers the recorded thread also does this work.
    return replace(found, eases=not case.loading.loop.model.workers and not case.device.is_used)


def take_away(case: Case, batches: BatchTimes, stage: str, usual_frac: float) -> WhatIf:
    """Return the what-if of a removed stage. In practice, `usual_frac` of its time usually remains."""
    usual = scale_stages(case, batches, (stage,), usual_frac)
    return replace(usual, full=scale_stages(case, batches, (stage,), 0.0).change)


def shorten_step(case: Case, part: str, part_ns: float, saved_frac: float) -> WhatIf:
    """Return the what-if that saves a share of the piece `part` of the step, outside the wait for data.

    Pieces are parts of the measured step, so the savings of several changes add up.
    """
    own_ns = case.loading.loop.own_ns
    saved = saved_frac * (min(part_ns / own_ns, 1.0) if own_ns > 0 else 0.0)

    def change(model: LoopModel) -> LoopModel:
        left = max(model.left - saved, 0.0)
        kept = left / model.left if model.left > 0 else 1.0
        # In proportion to the step: a change that removes stalls saves time in the stalled steps, and none in the short
        # steps between them.
        steps = tuple(Job(step.wall_ns * kept, step.cores) for step in model.steps)
        return replace(model, steps=steps, left=left)

    return WhatIf(change, {part: part_ns}, eases=part in _COMPUTED_PARTS and not case.device.is_used)


def also(first: WhatIf, second: WhatIf) -> WhatIf:
    """Return the what-if of both changes together. They must shorten different pieces of the step."""

    return replace(
        first,
        change=lambda model: second.change(first.change(model)),
        touches={**first.touches, **second.touches},
        eases=first.eases or second.eases,
    )


def shorten_phases(case: Case, phases: tuple[str, ...], saved_frac: float) -> WhatIf:
    """Return the what-if that saves the share `saved_frac` of the time in some phases."""
    spent = {phase: case.steps.phases_ns[phase] for phase in phases}
    return replace(shorten_step(case, "phases", sum(spent.values()), saved_frac), touches=spent)


def shorten_kernels(case: Case, share: float, saved_frac: float) -> WhatIf:
    """Return the what-if that saves `saved_frac` of some kernels, which take `share` of the device's computing."""
    shares = case.device.shares
    busy = shares.compute if shares is not None else 0.0
    return shorten_step(case, "kernels", share * busy * case.loading.loop.own_ns, saved_frac)


def save_replayed(case: Case, part: str, gain: Gain) -> WhatIf:
    """Return the what-if of a change whose saved share of the step comes from a replay of the recorded window."""
    step_ns = case.steps.mean_ns
    saved = shorten_step(case, part, gain.frac * step_ns, 1.0)
    return replace(saved, touches={part: gain.high_frac * step_ns})


def name_shortened(case: Case, what_if: WhatIf | None) -> tuple[str, ...]:
    """Return the phases that a change makes shorter, in their order in a step; empty if any phase may be."""
    parts = () if what_if is None else tuple(what_if.touches)
    found = {phase for part in parts for phase in _PHASES_OF.get(part, (part,))}
    known = tuple(phase.name for phase in PHASES if phase.name in found)
    is_told = len(known) == len(found) and (not case.device.is_used or found <= _HOST_PHASES)
    return known if is_told else ()


def mend_ranks(case: Case, part: str) -> WhatIf:
    """Return the what-if without slow ranks. Every rank then takes the step of the job without their delay.

    The whole saving is assigned to the piece `part` of this rank's step.
    """
    verdict = case.ranks.verdict
    assert verdict.comparison is not None
    saved_ns = max(case.steps.mean_ns - verdict.comparison.step_ns + verdict.gain_ns, 0.0)
    # The other ranks do not work less through this change.
    return save_each_step(part, saved_ns, case.steps.mean_ns - verdict.comparison.latest.others_ns)


def bound_by_job(case: Case, what_if: WhatIf, saved_ns: float) -> float:
    """Return the most that the job gains, in ns, if this rank's step shrinks by `saved_ns`. Without a known bound this
    is `saved_ns`.

    The other ranks run the same code, so the change saves them the same share of their time in these phases.
    """
    phases = name_shortened(case, what_if)
    spent_ns = sum(case.steps.phases_ns[phase] for phase in phases)
    if what_if.is_of_job or not spent_ns or "communication" in phases:
        return saved_ns
    return min(saved_ns, case.ranks.bound_gain_ns(phases, min(saved_ns / spent_ns, 1.0)))


def save_each_step(part: str, saved_ns: float, most_ns: float = math.inf) -> WhatIf:
    """Return the what-if that saves `saved_ns` in each step of the job.

    The saving is assigned to the piece `part` of this rank's step. This piece can lose at most the larger of `most_ns`
    and `saved_ns`.
    """
    most_ns = min(MOST_OF_DELAY * saved_ns, max(most_ns, saved_ns))
    return WhatIf(lambda model: replace(model, extra_ns=model.extra_ns - saved_ns), {part: most_ns}, is_of_job=True)


def drop_extra(case: Case, saved_ns: float, computed_ns: float) -> WhatIf:
    """Return the what-if in which starts of epochs cost `saved_ns` less per step, of this `computed_ns` in computing."""
    return feed(case, lambda model: replace(model, extra_ns=model.extra_ns - saved_ns), computed_ns)


def sum_recorded_ns(case: Case) -> int:
    """Return the duration of all recorded steps in ns. Time between the steps is shown as a share of this sum."""
    return sum(int(read_column(rows, "duration_ns").sum()) for rows in (case.steps.rows, case.steps.other_rows))


def measure_garbage_outside(case: Case) -> float:
    """Return the mean time in ns that garbage collections add to the phases gap and tail of a step."""
    kept = case.steps.selection.kept
    gc_ns, gap_ns, tail_ns = (read_column(case.steps.rows, name)[kept] for name in ("gc_ns", "gap_ns", "tail_ns"))
    outside = gap_ns + tail_ns
    if not gc_ns.any():
        return 0.0
    quiet = gc_ns == 0
    usual = float(np.median(outside[quiet])) if quiet.any() else float((outside - gc_ns).clip(0).min())
    return float(np.clip(outside - usual, 0.0, gc_ns).mean())


def sum_in_steps(case: Case, found: Interruptions) -> Floats:
    """Return per training step how long interruptions held the thread, in ns, until the next step began.

    An interruption counts for the step in or after which it began.
    """
    starts = read_column(case.steps.rows, "start_ns")
    at = starts.searchsorted(found.start_ns, side="right") - 1
    inside = at >= 0
    return np.bincount(at[inside], found.duration_ns[inside], len(starts)).astype(np.float64)


def measure_still(case: Case) -> float | None:
    """Return the share of the time in which the recorded thread stands still and waits for neither data nor a processor;
    None if unknown."""
    load = case.host.load
    if load is None or load.main_thread is None:
        return None
    return 1.0 - (load.main_thread + (load.queued_frac or 0.0) + case.steps.share(*WAITING))


def measure_stalls(case: Case, found: Interruptions, spent_ns: Ints) -> float:
    """Return the share of the mean step that would be saved without the interruptions.

    `spent_ns` is the time in each step that the interruptions may lengthen. The saving is the excess of interrupted
    steps over the median of the other steps, and at least the time of the interruptions. Only steps that averages cover
    count.
    """
    kept = case.steps.selection.kept
    spent_ns, held_ns = spent_ns[kept], sum_in_steps(case, found)[kept]
    stalled = held_ns > 0
    usual = float(np.median(spent_ns[~stalled])) if not stalled.all() else float(spent_ns.min(initial=0))
    around = float(np.maximum(spent_ns[stalled] - usual, 0.0).sum())
    whole = float(case.steps.selection.duration_ns[kept].sum())
    return min(max(around, float(held_ns.sum())) / max(whole, 1.0), 1.0)


def find_min_gain_ns(case: Case) -> float:
    """Return the least gain in ns, without its uncertainty, that a fix must have. Other load of the host raises it."""
    return max(
        (MIN_GAIN_FRAC + CONTENTION_WEIGHT * case.loading.loop.contention_frac) * case.steps.mean_ns, MIN_GAIN_NS
    )


def blame_function(case: Case, batches: BatchTimes, found: Finding, part: Part | None) -> Finding:
    """Return the finding, now on removing the function that takes most of the stage; unchanged if no function does."""
    culprit = find_dominant(part)
    if culprit is None or part is None:
        return found
    call, text = name_call(culprit), found.text
    text = replace(
        text,
        title=f"{text.title.partition(':')[0]}: {call}",
        advice=f"{spell_function(culprit)} is most of it: do it once and store the result, or do less of it. {text.advice}",
        fix=f"taking {call} out",
        assumption="",
        removed=call,
    )
    what_if = scale_stages(case, batches, (part.name,), 1.0 - culprit.share_frac)
    return doubt_removal(replace(found, text=text, what_if=what_if), culprit)


def doubt_removal(found: Finding, entry: NamedFunction) -> Finding:
    """Return the finding with the uncertainty of its gain set to that of the share of the removed function."""
    doubt_frac = (entry.high_frac - entry.low_frac) / 2 / entry.share_frac
    return replace(found, doubt_frac=doubt_frac, least_frac=CERTAIN_LOSS * entry.low_frac / entry.share_frac)


def say_idle_share(case: Case) -> str:
    """Return the share of the steps in which the device is idle, as text, equal to that on the Device page."""
    return format_share(case.device.summary.idle_frac if case.device.summary is not None else None)


def ask_for_window(case: Case, rule: str) -> Abstention:
    """Return an abstention: the rule needs a detailed window that links calls to the work that they launched."""
    imported = "Trace with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
    how = imported if case.is_imported else 'Record with Profiler(window="auto").'
    return Abstention(rule, "which call launched which work of the device", how)


def look_for(case: Case, rule: str, sighting: str = "") -> Sighting | Abstention | None:
    """Return the window's sighting with the name `sighting`, by default `rule`; None if not seen, or without a device.

    Return an abstention if no window was replayed, or if the replay does not explain the window.
    """
    if not case.device.is_used:
        return None
    replay = case.device.replay
    if replay is None:
        return ask_for_window(case, rule)
    seen = replay.seen.get(sighting or rule)
    if seen is not None and not replay.is_valid:
        share = format_share(1.0 + replay.error_frac)
        missing = f"a replay that explains the window (it gives {share} of the measured time)"
        return Abstention(rule, missing, "Record another window.")
    return seen


def predict(case: Case, finding: Finding, part: str, gain: Gain) -> Finding:
    """Return the finding with the predicted gain of a replay. `part` is the piece of the step that becomes shorter.

    Steps of a window are longer than other steps. All of this excess may be part of the saving, so the gain is
    uncertain.
    """
    replay, mean_ns = case.device.replay, case.steps.mean_ns
    longer = replay.measured_ns / replay.steps / mean_ns if replay is not None and replay.steps and mean_ns else 1.0
    excess = max(longer - 1.0, 0.0)
    least = max(gain.low_frac - excess * (1.0 - gain.low_frac), 0.0)
    doubt = gain.high_frac - gain.frac + excess * (1.0 - gain.frac)
    doubt_frac, least_frac = (doubt / gain.frac, least / gain.frac) if gain.frac > 0 else (None, 0.0)
    what_if = save_replayed(case, part, gain)
    return replace(finding, what_if=what_if, doubt_frac=doubt_frac, least_frac=least_frac, basis=_say_replay(case))


def predict_or(case: Case, finding: Finding, part: str, change: str) -> Finding:
    """Return the finding with the replayed gain of the change `change`; without such a replay, return it unchanged."""
    gain = case.device.find_gain(change)
    return finding if gain is None else predict(case, finding, part, gain)


def _say_replay(case: Case) -> str:
    replay = case.device.replay
    assert replay is not None
    share = format_share(1.0 + replay.error_frac)
    return f"Computed by a replay of the recorded steps with the change. A replay without it takes {share} of the measured time."


def say_examples(seen: Sighting) -> str:
    """Return the most costly examples of a pattern in brackets, as the end of a sentence; "" for none."""
    return f" ({', '.join(seen.examples)})" if seen.examples else ""
