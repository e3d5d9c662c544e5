"""The verdict: what a rank is bound by, how certain that is, and the sentence for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.format.phases import COMPUTING, OUTSIDE, PHASE_NAMES, PHASE_PLACES, Bound, list_bound_by
from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC, MIN_STEPS
from profiler_server.diagnosis.limits.loading import CROWDED_FRAC, HIGH_WAIT_FRAC, MODERATE_WAIT_FRAC
from profiler_server.diagnosis.limits.verdict import (
    BETWEEN_FRAC,
    BOUND_FRAC,
    LIKELY_FRAC,
    LITTLE_FRAC,
    SURE_FRAC,
    UNSEEN_DEVICE,
)
from profiler_server.diagnosis.rank_sentences import describe_headline
from profiler_server.diagnosis.what_if import find_min_gain_ns, measure_stalls
from profiler_server.facts.case import Case, Claim
from profiler_server.facts.loading import Floats
from profiler_server.facts.results import BoundBy, BoundKind, Suggestion
from profiler_server.facts.steps import read_column
from profiler_server.format import format_duration, format_number_of, format_share
from profiler_server.words.phrases import AROUND_ACTING, acts_in_steps, say_ready

_MOST_STRETCHES = 20
_STRETCH_STEPS = 25

_BOUNDS: tuple[Bound, ...] = ("input", "transfer", "communication", "overhead", "compute")
_PARTS: dict[BoundKind, tuple[str, ...]] = {bound: list_bound_by(bound) for bound in _BOUNDS}


def find_bound(case: Case) -> BoundBy:
    """Return what bounds the step. The confidence is the share of stretches of the run that agree when judged alone.

    A stretch has at least 25 steps, so that occasional events are in most stretches. Fewer than twenty steps, or
    missing device times, lower the confidence. Without known phases the bound is unknown.
    """
    if not case.knows_phases:
        return BoundBy("unknown", None, None, 0.0)
    kept = np.flatnonzero(case.steps.selection.kept)
    phases = np.stack([read_column(case.steps.rows, f"{name}_ns")[kept] for name in PHASE_NAMES]).astype(np.float64)
    kind, share = _judge(case, phases.sum(axis=1))
    count = max(1, min(_MOST_STRETCHES, len(kept) // _STRETCH_STEPS))
    stretches = np.array_split(phases, count, axis=1)
    agreeing = [stretch.shape[1] for stretch in stretches if _judge(case, stretch.sum(axis=1))[0] == kind]
    unseen = case.device.is_used and case.device.summary is None and kind in ("compute", "overhead")
    # The error of a mean falls with the root of the number of steps.
    sure = len(agreeing) / count * min(1.0, len(kept) / MIN_STEPS) ** 0.5 * (UNSEEN_DEVICE if unseen else 1.0)
    text = _say_confidence(len(kept), sum(agreeing), unseen, case.steps.noun)
    limit = case.loading.bottleneck
    if kind == "input":
        return BoundBy(_INPUT_KINDS.get(limit.cause, "input"), limit.stage, share, sure, text)
    return BoundBy(kind, None, share, sure, text)


_INPUT_KINDS: dict[str, BoundKind] = {"receiving": "receive", "processor": "processor"}


def _say_confidence(steps: int, agreeing: int, unseen: bool, noun: str = "step") -> str:
    if steps < MIN_STEPS:
        return f"unsure: {format_number_of(steps, noun)} only"
    if unseen:
        return "unsure: the times of the device were not recorded"
    if agreeing == steps:
        return f"sure: {format_number_of(steps, noun)} agree"
    told = f"{agreeing:,} of {format_number_of(steps, noun)} agree"
    if agreeing >= SURE_FRAC * steps:
        return f"sure: {told}"
    return f"fairly sure: {told}" if agreeing >= LIKELY_FRAC * steps else f"unsure: only {told}"


def _judge(case: Case, sums: Floats) -> tuple[BoundKind, float]:
    whole = float(sums.sum()) or 1.0
    shares = {kind: sum(float(sums[PHASE_PLACES[name]]) for name in names) / whole for kind, names in _PARTS.items()}
    if not case.device.is_used:  # nothing is copied to a device: what precedes the forward is preparation on the host
        shares["overhead"] += shares.pop("transfer")
    elif case.device.summary is not None:
        _judge_device(case, shares)
    limits = {kind: share for kind, share in shares.items() if kind != "compute"}
    if case.loading.bottleneck.cause == "processor" and limits["input"] < HIGH_WAIT_FRAC:
        del limits["input"]  # batches are ready, and most of the wait for a processor lies in the computing
    kind = max(limits, key=lambda name: limits[name])
    return (kind, limits[kind]) if limits[kind] >= BOUND_FRAC else ("compute", shares["compute"])


def _judge_device(case: Case, shares: dict[BoundKind, float]) -> None:
    """Adjust the shares for device times: host phases then only show where the thread waited, and idle time decides the
    overhead.

    In a trace a step lasts until its device work is done, so a wait for data during device work delays nothing.
    """
    device = case.device.shares
    if device is None:
        return
    if case.is_imported:
        shares["input"] = min(shares["input"], device.idle)
    has_host = (
        case.device.dispatch_frac is not None or not case.is_imported
    )  # a trace of the device alone blames nobody
    unfed = max(0.0, device.unfed - shares["input"]) if has_host else 0.0
    shares["launch"] = unfed if case.device.is_dispatching else 0.0
    shares["overhead"] = min(shares["overhead"], device.idle) if case.device.is_dispatching else unfed
    shares["communication"] = max(shares["communication"], device.communication)
    shares["compute"] = max(shares["compute"], device.compute)


def say_limit(case: Case, bound: BoundBy) -> str:
    """Return sentences with figures: what holds the job up, if anything does, and what the rank is bound by."""
    job = describe_headline(case.ranks.verdict, case.steps.noun)
    return " ".join(filter(None, (job, _SENTENCES[bound.kind](case, bound))))


def say_verdict(
    case: Case,
    bound: BoundBy,
    claims: Sequence[Claim],
    notes: Sequence[Suggestion],
    leads: Sequence[Suggestion] = (),
) -> str:
    """Return the verdict in a few sentences with figures; `leads` come before the claims."""
    sentence = say_limit(case, bound)
    # What the verdict is about already is not said twice.
    told = [note for note in notes if note.severity != "info" and (bound.kind, note.rule) != ("receive", "ipc_bound")]
    noted = f" {told[0].title}." if told else ""
    steady = case.steps.steady
    if steady < MIN_STEPS:
        recorded = (
            f"{format_number_of(steady, f'steady {case.steps.noun}')} {'was' if steady == 1 else 'were'} recorded"
        )
        needs = "predicting a gain" if case.is_imported or noted else "advice"
        return f"{sentence}{noted} Only {recorded}; {needs} needs {MIN_STEPS}."
    if not claims and noted:
        return f"{sentence}{noted}"
    if not claims:
        return f"{sentence} {_say_nothing(case)}"
    sentence += "".join(f" {lead.title}." for lead in leads)
    best = claims[0]
    span = f"{format_duration(best.low_ns)} – {format_duration(best.high_ns)}"
    text = best.finding.text
    if text.assumption:
        condition = _capitalise(f"if {text.assumption}")
        return f"{sentence} {condition}, a {case.steps.noun} would take about {format_duration(best.step_ns)} ({span})."
    return f"{sentence} {_capitalise(text.fix)} would make a {case.steps.noun} about {format_duration(best.step_ns)} ({span})."


def _say_nothing(case: Case) -> str:
    """Return a sentence that no change gains enough, with the least gain that would be reported."""
    least_frac = find_min_gain_ns(case) / case.steps.mean_ns
    if least_frac >= 1.0:
        nouns = "batches" if case.steps.noun == "batch" else f"{case.steps.noun}s"
        return f"No gain can be told from noise here: the {nouns} are too few, or differ too much."
    if least_frac >= 2 * MIN_GAIN_FRAC and case.loading.loop.contention_frac > 0:
        return (
            f"No change was found that surely pays; other programs used so much of the processors that only gains of "
            f"{format_share(least_frac)} or more can be told from noise."
        )
    return (
        f"No change was found that would surely save {format_share(least_frac)} of a {case.steps.noun} or more; smaller "
        "gains are not suggested."
    )


def _capitalise(text: str) -> str:
    """Capitalise the first letter, unless the text begins with code."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text


def _of_step(case: Case, *names: str) -> str:
    part = sum(case.steps.phases_ns[name] for name in names)
    return (
        f"{format_duration(part)} of {format_duration(case.steps.mean_ns)} ({format_share(part / case.steps.mean_ns)})"
    )


def _say_input(case: Case, bound: BoundBy) -> str:
    level = "Highly input-bound" if (bound.share_frac or 0.0) >= HIGH_WAIT_FRAC else "Moderately input-bound"
    of_loader = f", most of it for {case.loading.name}" if case.other_loadings else ""
    slow = "" if bound.stage is None else _SLOW.get(bound.stage, f"; {bound.stage} is {{}} slow stage")
    slow = slow.format("its" if case.other_loadings else "the")
    return f"{level}: the {case.steps.noun} waits {_of_step(case, 'data_wait')} for data{of_loader}{slow}.{_say_cause_of_wait(case)}"


def _say_cause_of_wait(case: Case) -> str:
    limit = case.loading.bottleneck
    return f" {limit.reason}" if limit.cause in ("overhead", "epoch_start") else ""


_SLOW = {"pin": "; pinning the batches is what is slow"}


def _say_receive(case: Case, bound: BoundBy) -> str:
    of_loader = f" of {case.loading.name}" if case.other_loadings else ""
    stage = "" if bound.stage in (None, "send") else f" {bound.stage} keeps its workers busy."
    return (
        f"Receiving batches holds up the {case.steps.noun}: it waits {_of_step(case, 'data_wait')} for data{of_loader}, although "
        f"{say_ready(case)}.{stage}"
    )


def _say_processor(case: Case, bound: BoundBy) -> str:
    return (
        f"Short of processors: the {case.steps.noun} waits {_of_step(case, 'data_wait')} for data that is ready, because the training "
        f"thread waits for a free processor {_share_queued(case)} of the time."
    )


def _share_queued(case: Case) -> str:
    return format_share(case.host.load.queued_frac if case.host.load is not None else None)


def _say_compute(case: Case, bound: BoundBy) -> str:
    wait, device = case.steps.phases_ns["data_wait"], case.device.shares
    if case.device.is_used and device is not None:
        return f"Compute-bound: the device computes {format_share(device.compute)} of the {case.steps.noun}."
    work = "the forward takes" if case.steps.noun == "batch" else "forward, backward and update take"
    parts = f"Compute-bound: {work} {_of_step(case, *COMPUTING)}{_say_compiling(case)}"
    if not wait and case.loading.loader is None:
        return f"{parts}."
    if case.steps.share("data_wait") < MODERATE_WAIT_FRAC:
        return f"{parts}{_say_crowding(case)}, and the loader keeps up ({format_duration(wait)} wait)."
    waits = f"{parts}; waiting for data takes {format_duration(wait)} ({format_share(case.steps.share('data_wait'))})"
    if case.loading.bottleneck.cause != "processor":
        return f"{waits}."
    return f"{waits}, because the training thread waits for a free processor {_share_queued(case)} of the time."


def _say_compiling(case: Case) -> str:
    """Describe how much of the step goes to functions that are compiled again; "" if little."""
    again = case.steps.interruptions.of_kind("recompile")
    share = measure_stalls(case, again, read_column(case.steps.rows, "duration_ns"))
    if share < BOUND_FRAC:
        return ""
    return f", {format_duration(share * case.steps.mean_ns)} of it because functions are compiled again"


def _say_crowding(case: Case) -> str:
    """Describe how much of the step the training thread queues for processors that the workers use; "" if little."""
    load = case.host.load
    if load is None or (load.queued_frac or 0.0) < CROWDED_FRAC or load.workers <= load.others:
        return ""
    queued = format_duration((load.queued_frac or 0.0) * case.steps.mean_ns)
    used = f"{load.workers:.1f} of {case.host.cores:g}"
    return f", with {queued} of the {case.steps.noun} in the queue for processors (the workers use {used})"


def _say_overhead(case: Case, bound: BoundBy) -> str:
    if case.device.is_used and not case.device.is_dispatching:
        return (
            f"Overhead-bound: {_say_idle(case, bound)} while the host runs operators in "
            f"{format_share(case.device.dispatch_frac)} of it; the rest is Python, or waiting for something else."
        )
    if case.device.is_used or _prepares_little(case):
        names, known = OUTSIDE, "loading, preparing the batch, forward, backward and update"
    else:
        names, known = ("gap", "h2d", "tail"), "loading, forward, backward and update"
    most = max(names, key=lambda name: case.steps.phases_ns[name])
    place = AROUND_ACTING if most == "gap" and acts_in_steps(case) else _PLACES[most]
    return f"Overhead-bound: {_of_step(case, *names)} are spent outside of {known}, most of it {place}."


def _prepares_little(case: Case) -> bool:
    """Return whether preparing the batch adds almost nothing to the time outside the known calls, so that the rules'
    share applies."""
    phases = case.steps.phases_ns
    return phases["h2d"] < LITTLE_FRAC * sum(phases[name] for name in OUTSIDE)


def _say_idle(case: Case, bound: BoundBy) -> str:
    """Describe how long the device is idle, as on the Device page, and how much of the step it waits for a late host."""
    waits = f"waits {format_share(bound.share_frac)} of the step for its next kernel to be launched"
    device = case.device.summary
    if device is None or not device.total_ns:
        return f"the device {waits}"
    if device.idle_ns / device.total_ns < BETWEEN_FRAC * (bound.share_frac or 0.0):
        share = format_share(bound.share_frac)
        return f"the device has no work, mostly before its first or after its last kernel, for {share} of the step"
    if device.idle_frac is None or device.idle_frac <= (bound.share_frac or 0.0):
        return f"the device {waits}"
    return f"the device is idle {format_share(device.idle_frac)} of the step and {waits}"


def _say_unknown(case: Case, bound: BoundBy) -> str:
    return (
        f"What bounds the {case.steps.noun} is unknown: the trace has its length, {format_duration(case.steps.mean_ns)}, "
        "but not its parts."
    )


_PLACES = {
    "gap": "between the end of a step and the next batch",
    "h2d": "preparing the batch before the forward",
    "tail": "after the parameter update",
}


_SENTENCES = {
    "input": _say_input,
    "receive": _say_receive,
    "processor": _say_processor,
    "transfer": lambda case, bound: f"Transfer-bound: {_of_step(case, 'h2d')} are spent on copies before the forward.",
    "communication": lambda case, bound: (
        f"Communication-bound: training waits {_of_step(case, 'communication')} "
        f"{'for other stages and ' if case.ranks.is_pipeline else ''}in collectives."
    ),
    "overhead": _say_overhead,
    "launch": lambda case, bound: f"Launch-bound: {_say_idle(case, bound)}.",
    "compute": _say_compute,
    "unknown": _say_unknown,
}
