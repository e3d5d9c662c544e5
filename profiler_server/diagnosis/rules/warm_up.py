"""The first steps took a large part of the run."""

from __future__ import annotations

import numpy as np

from profiler_server.diagnosis.limits import WARM_UP_FRAC, WARM_UP_NS
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    selection = case.steps.selection
    if not selection.warm_up.any():
        return None
    steps = int(selection.warm_up.sum())
    extra = float(selection.duration_ns[selection.warm_up].sum()) - steps * float(
        np.mean(case.loading.loop.regular_step_ns)
    )
    share = extra / float(selection.duration_ns.sum())
    if extra < WARM_UP_NS or share < WARM_UP_FRAC:
        return None
    return Finding(
        title="The first steps are slow",
        measured=f"The first {'step' if steps == 1 else f'{steps} steps'} took {format_duration(extra)} more than usual, {format_share(share)} of the "
        "recorded training. They are not in the averages.",
        threshold=f"At least {format_duration(WARM_UP_NS)} and {format_share(WARM_UP_FRAC)} of the recorded training.",
        advice="This does not matter in a long run. If runs are short, keep compiled code between runs and start the workers early.",
        change="TORCHINDUCTOR_CACHE_DIR=/a/disk/that/stays python train.py",
        fix="a shorter warm-up",
        evidence=(Evidence("steps", "step=1", "The first step"),),
    )


RULE = Rule("warm_up", knob="warm_up", effort="flag", judge=_judge)
