"""The first steps took a large part of the run."""

from __future__ import annotations

import numpy as np

from profiler_server.analysis.results import Evidence
from profiler_server.diagnosis.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share

_SHARE = 0.10
_LEAST_NS = 10e9


def _judge(case: Case) -> Finding | None:
    selection = case.selection
    if not selection.warm_up.any():
        return None
    steps = int(selection.warm_up.sum())
    extra = float(selection.duration_ns[selection.warm_up].sum()) - steps * float(np.mean(case.loop.regular_step_ns))
    share = extra / float(selection.duration_ns.sum())
    if extra < _LEAST_NS or share < _SHARE:
        return None
    return Finding(
        title="The first steps are slow",
        measured=f"The first {'step' if steps == 1 else f'{steps} steps'} took {format_duration(extra)} more than usual, {format_share(share)} of the "
        "recorded training. They are not in the averages.",
        threshold=f"More than {format_duration(_LEAST_NS)} and {format_share(_SHARE)} of the recorded training.",
        advice="Harmless in a long run. If runs are short: keep compiled code between runs, and start the workers early.",
        change="TORCHINDUCTOR_CACHE_DIR=/a/disk/that/stays python train.py",
        fix="a shorter warm-up",
        evidence=(Evidence("steps", "step=1", "The first step"),),
    )


RULE = Rule("warm_up", knob="warm_up", effort="flag", judge=_judge)
