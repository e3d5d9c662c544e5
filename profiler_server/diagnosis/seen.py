"""What rules on the device share: what a replayed window shows, and what its absence would save."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.what_if import bound_gain, save_replayed
from profiler_server.facts.case import Case, Finding, WhatIf
from profiler_server.facts.machine import Gain, Sighting
from profiler_server.facts.results import Abstention, Evidence
from profiler_server.format import format_share

TIMELINE = Evidence("timeline", "", "Host and device side by side")


def say_idle_share(case: Case) -> str:
    """Return the share of the steps in which nothing runs on the device, as its page has it."""
    return format_share(case.device.summary.idle_frac if case.device.summary is not None else None)


def ask_for_window(case: Case, rule: str) -> Abstention:
    """Say that a rule needs a detailed window in which calls are linked to the work that they launched."""
    imported = "Trace with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
    how = imported if case.is_imported else 'Record with Profiler(window="auto").'
    return Abstention(rule, "which call launched which work of the device", how)


def look_for(case: Case, rule: str, sighting: str = "") -> Sighting | Abstention | None:
    """Return what the window shows under a name (that of the rule, if none is given); None for nothing of it."""
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
    """Return a finding with the prediction of a replay."""
    gain = _doubt_recording(case, gain)
    what_if: WhatIf = save_replayed(case, part, gain)
    return replace(finding, what_if=what_if, gain_range=bound_gain(gain), tier="A", basis=_say_replay(case))


def predict_or(case: Case, finding: Finding, part: str, change: str) -> Finding:
    """Return a finding with the prediction of a replay where there is one, else as it is."""
    gain = case.device.find_gain(change)
    return finding if gain is None else predict(case, finding, part, gain)


def _doubt_recording(case: Case, gain: Gain) -> Gain:
    """Lower the low end of a gain: steps of a window are longer than others, and all of that may lie in what is saved."""
    replay = case.device.replay
    if replay is None or not replay.steps or not case.steps.mean_ns:
        return gain
    longer = replay.measured_ns / replay.steps / case.steps.mean_ns
    return replace(
        gain, low_frac=max(gain.low_frac * longer - max(longer - 1.0, 0.0), 0.0) if longer > 1.0 else gain.low_frac
    )


def _say_replay(case: Case) -> str:
    replay = case.device.replay
    assert replay is not None
    share = format_share(1.0 + replay.error_frac)
    return f"Worked out by replaying the recorded steps with the change; without it the replay gives {share} of their time."


def say_examples(seen: Sighting) -> str:
    """Return the most costly examples as the end of a sentence, "" for none."""
    return f" ({', '.join(seen.examples)})" if seen.examples else ""
