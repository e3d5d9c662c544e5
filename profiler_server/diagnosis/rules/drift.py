"""Steps become longer as the run goes on."""

from __future__ import annotations

import numpy as np

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits import DRIFT_FRAC, DRIFT_PARTS, DRIFT_RISES, DRIFT_STEPS, NOISY_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
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
        evidence=(STEPS_PAGE,),
        severity="low",
    )


RULE = Rule("drift", knob="drift", effort="code", judge=_judge)
