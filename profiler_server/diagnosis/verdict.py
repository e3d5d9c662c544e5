"""The verdict: what a rank is bound by, how certain this is, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from collector.format.phases import COMPUTING, OUTSIDE, PHASE_NAMES, PHASE_PLACES, Bound, list_bound_by
from collector.format.steps import find_stood
from profiler_server.analysis.accounting.explained import explain_phases
from profiler_server.diagnosis.limits.facts import EXPLAINED_FRAC, MIN_GAIN_FRAC, MIN_STEPS, NOISY_FRAC, QUEUED_FRAC
from profiler_server.diagnosis.limits.host import PYTHON_CORES
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
from profiler_server.diagnosis.readings import say_host_waits
from profiler_server.diagnosis.what_if import find_min_gain_ns, measure_stalls, measure_still
from profiler_server.facts.case import Case, Claim
from profiler_server.facts.loading import Floats
from profiler_server.facts.results import BoundBy, BoundKind, Suggestion
from profiler_server.facts.steps import Explained, read_column
from profiler_server.format import format_duration, format_share, say
from profiler_server.words.phrases import acts_in_steps, say_ready

Found = tuple[str, dict[str, object]]
"""The name of a text, and figures in it."""
_MOST_STRETCHES = 20
_STRETCH_STEPS = 25

_BOUNDS: tuple[Bound, ...] = ("input", "transfer", "communication", "overhead", "compute")
_PHASES: Mapping[BoundKind, Sequence[str]] = {
    **dict.fromkeys(("input", "receive", "processor"), ("data_wait",)),
    "transfer": ("h2d",),
    "communication": ("communication",),
}
"""The phases that the sentence on a bound names."""
_PARTS: dict[BoundKind, tuple[str, ...]] = {bound: list_bound_by(bound) for bound in _BOUNDS}


def find_bound(case: Case) -> BoundBy:
    """Return what the step is bound by. The confidence is the share of sections of the run that give the same result by
    themselves.

    A section has at least 25 steps, so that occasional events are in most sections. Fewer than twenty steps, or missing
    device times, lower the confidence. Without known phases the result is unknown.
    """
    if not case.knows_phases:
        return BoundBy("unknown", None, None, 0.0)
    kept = np.flatnonzero(case.steps.selection.kept)
    phases = np.stack([read_column(case.steps.rows, f"{name}_ns")[kept] for name in PHASE_NAMES]).astype(np.float64)
    kind, share = _judge(case, phases.sum(axis=1))
    if kind == "overhead" and case.manifest.lacks_steps:  # time before and after the only iteration is part of no step
        return BoundBy("unknown", None, None, 0.0)
    count = max(1, min(_MOST_STRETCHES, len(kept) // _STRETCH_STEPS))
    stretches = np.array_split(phases, count, axis=1)
    agreeing = [stretch.shape[1] for stretch in stretches if _judge(case, stretch.sum(axis=1))[0] == kind]
    unseen = case.device.is_used and case.device.summary is None and kind in ("compute", "overhead")
    # The error of a mean falls with the square root of the number of steps.
    sure = len(agreeing) / count * min(1.0, len(kept) / MIN_STEPS) ** 0.5 * (UNSEEN_DEVICE if unseen else 1.0)
    text = _say_confidence(len(kept), sum(agreeing), unseen, case.steps.noun)
    limit = case.loading.bottleneck
    # The duration of the recorded thread's own work, including its own input, depends on the host.
    is_own = kind in ("compute", "overhead") or (kind == "input" and not case.loading.loop.model.workers)
    if is_own and (queued_frac := _find_queued(case)) >= QUEUED_FRAC:
        return BoundBy("processor", None, queued_frac, sure, text)
    if kind == "input":
        return BoundBy(_INPUT_KINDS.get(limit.cause, "input"), limit.stage, share, sure, text)
    return BoundBy(kind, None, share, sure, text)


def _find_queued(case: Case) -> float:
    """Return the share of time that the recorded thread waits for a processor. Phases then depend on the host, not on
    the code.

    The share is 0 with a device, because the thread mostly waits for the device. The share is also 0 if workers keep up
    but take the processors, because a rule judges this.
    """
    load = case.host.load
    if case.device.is_used or load is None:
        return 0.0
    keeps_up = load.workers > load.others and case.loading.bottleneck.cause != "processor"
    return 0.0 if keeps_up else load.queued_frac or 0.0


_INPUT_KINDS: dict[str, BoundKind] = {"receiving": "receive", "processor": "processor"}


def _say_confidence(steps: int, agreeing: int, unseen: bool, noun: str = "step") -> str:
    if steps < MIN_STEPS:
        sure = "few"
    elif unseen:
        sure = "unseen"
    elif agreeing == steps:
        sure = "all"
    elif agreeing >= SURE_FRAC * steps:
        sure = "sure"
    else:
        sure = "likely" if agreeing >= LIKELY_FRAC * steps else "unsure"
    return say("confidence", sure, steps=steps, agreeing=agreeing, noun=noun)


def _judge(case: Case, sums: Floats) -> tuple[BoundKind, float]:
    whole = float(sums.sum()) or 1.0
    shares = {kind: sum(float(sums[PHASE_PLACES[name]]) for name in names) / whole for kind, names in _PARTS.items()}
    if not case.device.is_used:  # nothing is copied to a device: the time before the forward is preparation on the host
        shares["overhead"] += shares.pop("transfer")
    elif case.device.summary is not None:
        _judge_device(case, shares)
    limits = {kind: share for kind, share in shares.items() if kind != "compute"}
    if case.loading.bottleneck.cause == "processor" and limits["input"] < HIGH_WAIT_FRAC:
        del limits["input"]  # batches are ready, and most of the wait for a processor is in the computing
    kind = max(limits, key=lambda name: limits[name])
    return (kind, limits[kind]) if limits[kind] >= BOUND_FRAC else ("compute", shares["compute"])


def _judge_device(case: Case, shares: dict[BoundKind, float]) -> None:
    """Correct the shares of the step by the device's times. Host phases only show where the thread waited for the
    device, so idle time of the device gives the overhead.

    In a trace, a step lasts until its device work is done. So a wait for data during device work delays nothing.
    """
    device = case.device.shares
    if device is None:
        return
    if case.is_imported:
        shares["input"] = min(shares["input"], device.idle)
    has_host = (
        case.device.dispatch_frac is not None or not case.is_imported
    )  # a trace of only the device does not show a cause
    unfed = max(0.0, device.unfed - shares["input"]) if has_host else 0.0
    if case.manifest.lacks_steps and case.device.summary is not None:
        unfed = min(unfed, case.device.summary.idle_ns / max(case.device.summary.whole_ns, 1))
    shares["launch"] = unfed if case.device.is_dispatching else 0.0
    shares["overhead"] = min(shares["overhead"], device.idle) if case.device.is_dispatching else unfed
    shares["communication"] = max(shares["communication"], device.communication)
    shares["compute"] = max(shares["compute"], device.compute)


def say_limit(case: Case, bound: BoundBy) -> str:
    """Return sentences with figures: what delays the job, then what the rank is bound by.

    The last sentence is on the largest unexplained part of a phase.
    """
    job = describe_headline(case.ranks.verdict, case.steps.noun)
    rest = _find_rest(case, bound)
    waits = (
        say_host_waits(case.device.host_waits, case.steps.noun)
        if bound.kind in ("input", "overhead", "unknown")
        else ""
    )
    return " ".join(
        filter(None, (job, _say_bound(case, bound, rest), waits, _say_still(case, bound), _say_rest(case, rest)))
    )


def _say_still(case: Case, bound: BoundBy) -> str:
    """Return a sentence on phases of computing in which the recorded thread waits for the interpreter; "" for none."""
    load, still_frac = case.host.load, measure_still(case) or 0.0
    threads = load.python_threads if load is not None else None
    if bound.kind != "compute" or case.device.is_used or min(still_frac, threads or 0.0) < PYTHON_CORES:
        return ""
    return say("rest", "still", noun=case.steps.noun, still_frac=still_frac)


def _find_rest(case: Case, bound: BoundBy) -> Explained | None:
    """Return the phase with the largest part that no line, stage or operator explains; None if this part is small.

    Also None if the times show the host or a device rather than the code.
    """
    if case.device.is_used or bound.kind in ("processor", "unknown"):
        return None
    found = explain_phases(case.steps, (case.loading, *case.other_loadings), case.lines)
    return found[0] if found and found[0].rest_ns >= EXPLAINED_FRAC * case.steps.mean_ns else None


def _say_rest(case: Case, rest: Explained | None) -> str:
    if rest is None:
        return ""
    entry = "of_loader" if rest.phase == "data_wait" else "of_phase"
    again = say("rest", "again", noun=case.steps.noun) if rest.is_made_again else ""
    return say("rest", entry, rest=rest, known_ns=rest.whole_ns - rest.rest_ns, again=again)


def say_verdict(
    case: Case,
    bound: BoundBy,
    claims: Sequence[Claim],
    notes: Sequence[Suggestion],
    leads: Sequence[Suggestion] = (),
    looks: Sequence[Suggestion] = (),
) -> str:
    """Return the verdict in a few sentences with figures. `leads` come before the claims, `looks` come last."""
    # A note on the subject of the verdict is not repeated.
    told = [note for note in notes if note.severity != "info" and (bound.kind, note.rule) != ("receive", "ipc_bound")]
    noted, steady = told[0].title if told else "", case.steps.steady
    figures: dict[str, object] = {"limit": say_limit(case, bound), "noun": case.steps.noun, "noted": noted}
    if steady < MIN_STEPS:
        if why := explain_few(case):
            return f"{figures['limit']} {why}"
        needs = "few_to_predict" if case.is_imported or noted else "few_to_advise"
        return say("verdict", needs, steady=steady, least=MIN_STEPS, **figures)
    if not claims:
        least_frac = find_min_gain_ns(case) / case.steps.mean_ns
        entry, look = "noted" if noted else _explain_none(case, least_frac), looks[0].title if looks else ""
        return say(
            "verdict", "look" if look and entry == "nothing" else entry, least_frac=least_frac, look=look, **figures
        )
    best = claims[0]
    figures |= {"best": best, "leads": "".join(f" {lead.title}." for lead in leads)}
    if not best.is_shown:
        return say("verdict", "gain_unknown", **figures)
    text = best.finding.text
    if text.condition:
        entry = "gain_at_best" if text.removed else "gain_if"
        return say("verdict", entry, condition=_capitalise(f"if {text.condition}"), **figures)
    return say("verdict", "gain", fix=_capitalise(text.fix), **figures)


def explain_few(case: Case) -> str:
    """Return a sentence if too few steps are steady because most lie beside the reading of a detailed window."""
    steady, selection = case.steps.steady, case.steps.selection
    if case.is_imported or steady >= MIN_STEPS or "detailed" not in case.steps.rows.column_names:
        return ""
    left_out = ~(selection.kept | selection.warm_up | find_stood(case.steps.rows))
    beside = int((left_out & (read_column(case.steps.rows, "detailed") == 0)).sum())
    if steady + beside < MIN_STEPS:
        return ""
    return say("verdict", "beside_reading", beside=beside, steps=len(selection.step), noun=case.steps.noun)


def _explain_none(case: Case, least_frac: float) -> str:
    """Return the key of the text on why no change gains enough. A gain below `least_frac` is not reported."""
    if least_frac >= 1.0:
        return "noise"
    is_contended = least_frac >= 2 * MIN_GAIN_FRAC and case.loading.loop.contention_frac > 0
    return "contended" if is_contended else "nothing"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text


def _of_step(case: Case, *names: str) -> str:
    part = sum(case.steps.phases_ns[name] for name in names)
    return (
        f"{format_duration(part)} of {format_duration(case.steps.mean_ns)} ({format_share(part / case.steps.mean_ns)})"
    )


def _say_bound(case: Case, bound: BoundBy, rest: Explained | None) -> str:
    load, find = case.host.load, _FOUND.get(bound.kind)
    text, figures = (bound.kind, {}) if find is None else find(case, bound)
    if bound.kind in _PHASES:
        figures |= {phase: _of_step(case, phase) for phase in _PHASES[bound.kind]}
    if rest is not None and rest.phase == "data_wait" and case.loading.bottleneck.cause == "overhead":
        figures["reason"] = ""  # another sentence gives the rest of the wait with its figures
    loader = case.loading.name if case.other_loadings else ""
    queued_frac = load.queued_frac if load is not None else None
    figures |= {"noun": case.steps.noun, "loader": loader, "load": load, "queued_frac": queued_frac}
    return say("bound", text, case=case, bound=bound, **figures)


def _find_input(case: Case, bound: BoundBy) -> Found:
    limit, is_high = case.loading.bottleneck, (bound.share_frac or 0.0) >= HIGH_WAIT_FRAC
    text = "input" if bound.stage is None else "input_pin" if bound.stage == "pin" else "input_stage"
    return text, {
        "level": say("bound", "high" if is_high else "moderate"),
        "whose": "its" if case.other_loadings else "the",
        "reason": limit.reason if limit.cause in ("overhead", "epoch_start") else "",
    }


def _find_compute(case: Case, bound: BoundBy) -> Found:
    if case.device.is_used and case.device.shares is not None:
        summary = case.device.summary
        if not case.manifest.lacks_steps or summary is None or not summary.total_ns:
            return "compute_on_device", {}
        return "compute_between", {"busy_frac": 1.0 - summary.idle_ns / summary.total_ns}
    load, wait_ns, wait_frac = case.host.load, case.steps.phases_ns["data_wait"], case.steps.share("data_wait")
    again = case.steps.interruptions.of_kind("recompile")
    compiling_frac = measure_stalls(case, again, read_column(case.steps.rows, "duration_ns"))
    compiling_ns = compiling_frac * case.steps.mean_ns if compiling_frac >= BOUND_FRAC else None
    computing = say(
        "bound", "computing", part=_of_step(case, *COMPUTING), compiling_ns=compiling_ns, noun=case.steps.noun
    )
    figures: dict[str, object] = {"computing": computing, "wait_ns": wait_ns, "wait_frac": wait_frac}
    if not wait_ns and case.loading.loader is None:
        return "compute", figures
    if wait_frac < MODERATE_WAIT_FRAC:
        # The recorded thread queues for processors that its workers use.
        queued_frac = load.queued_frac or 0.0 if load is not None and load.workers > load.others else 0.0
        crowded_ns = queued_frac * case.steps.mean_ns if queued_frac >= CROWDED_FRAC else None
        return "compute_fed", {**figures, "crowded_ns": crowded_ns}
    return "compute_late", figures


def _find_processor(case: Case, bound: BoundBy) -> Found:
    load = case.host.load
    is_ready = case.loading.bottleneck.cause == "processor" and case.steps.share("data_wait") >= HIGH_WAIT_FRAC
    if load is None or is_ready:
        return "processor", {}
    return "processor_alone", {"others": load.others if case.host.others_frac >= NOISY_FRAC else None}


def _find_overhead(case: Case, bound: BoundBy) -> Found:
    if case.device.is_used and not case.device.is_dispatching:
        return "overhead_of_device", {"idle": _say_idle(case, bound)}
    is_prepared = case.device.is_used or _prepares_little(case)
    names = OUTSIDE if is_prepared else ("gap", "h2d", "tail")
    most = max(names, key=lambda name: case.steps.phases_ns[name])
    if most == "gap" and not acts_in_steps(case) and case.asks_outside:
        most = "asking"
    place = say("outside", "acting" if most == "gap" and acts_in_steps(case) else most)
    return "overhead_prepared" if is_prepared else "overhead", {"outside": _of_step(case, *names), "place": place}


def _prepares_little(case: Case) -> bool:
    """Return whether preparing the batch (h2d) takes almost none of the time outside the known calls."""
    phases = case.steps.phases_ns
    return phases["h2d"] < LITTLE_FRAC * sum(phases[name] for name in OUTSIDE)


def _say_idle(case: Case, bound: BoundBy) -> str:
    """Return text on how long the device is idle, as on the Device page, and how long a step waits for a late host."""
    device, frac = case.device.summary, bound.share_frac or 0.0
    text = "between"
    if device is None or not device.total_ns:
        text = "waits"
    elif device.idle_ns / device.total_ns < BETWEEN_FRAC * frac:
        text = "around"
    elif device.idle_frac is None or device.idle_frac <= frac:
        text = "waits"
    return say("idle", text, device=device, frac=bound.share_frac)


def _find_receive(case: Case, bound: BoundBy) -> Found:
    return "receive" if bound.stage in (None, "send") else "receive_stage", {"ready": say_ready(case)}


def _find_communication(case: Case, bound: BoundBy) -> Found:
    return "communication_of_stages" if case.ranks.is_pipeline else "communication", {}


def _find_unknown(case: Case, bound: BoundBy) -> Found:
    if not case.manifest.lacks_steps or not case.knows_phases:
        return "unknown", {}
    shares = case.device.shares
    idle_frac = shares.idle if shares is not None else case.steps.share(*OUTSIDE)
    return "unmarked", {"what": "device" if shares is not None else "host", "idle_frac": idle_frac}


_FOUND: Mapping[BoundKind, Callable[[Case, BoundBy], Found]] = {
    "input": _find_input,
    "receive": _find_receive,
    "communication": _find_communication,
    "overhead": _find_overhead,
    "launch": lambda case, bound: ("launch", {"idle": _say_idle(case, bound)}),
    "compute": _find_compute,
    "processor": _find_processor,
    "unknown": _find_unknown,
}
"""The functions that find the text for kinds of bounds that have several texts or more figures."""
