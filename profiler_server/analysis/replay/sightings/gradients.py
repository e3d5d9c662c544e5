"""Work for gradients that nobody uses, and forwards that run twice."""

from __future__ import annotations

import re

import numpy as np

from profiler_server.analysis.replay.graph import Changes
from profiler_server.analysis.replay.trial import Change, Trial
from profiler_server.analysis.replay.window import OPERATOR
from profiler_server.diagnosis.limits.replay import LEAST_RECORDED
from profiler_server.facts.machine import Sighting

_BACKWARD = re.compile(r"Backward|autograd::engine")
_CHECKPOINT = re.compile(r"^(CheckpointFunctionBackward|.*CheckpointFunctionBackward)$")


def find_recorded_gradients(trial: Trial) -> Sighting | None:
    """Operators that are recorded for a backward in a window that has none."""
    window = trial.window
    operators = window.kind == OPERATOR
    if window.match(_BACKWARD)[operators].any():
        return None
    recorded = np.flatnonzero(operators & (window.sequence >= 0) & (trial.top == np.arange(len(window.ids))))
    if len(recorded) < LEAST_RECORDED:
        return None
    share = len(recorded) / max(int((operators & (trial.top == np.arange(len(window.ids)))).sum()), 1)
    names = trial.rank_names(recorded, np.ones(len(recorded)))
    return trial.sight(len(recorded), float(trial.lengths(recorded).sum()), names, None, share=share)


def find_checkpointing(trial: Trial) -> Sighting | None:
    """Forwards that the backward runs again, because their results were not kept."""
    window = trial.window
    spans = np.flatnonzero(window.match(_CHECKPOINT) & (window.kind == OPERATOR))
    if not len(spans):
        return None
    inside = np.zeros(len(window.ids), bool)
    for row in spans.tolist():  # only the first half of it is a forward: the rest is its backward
        low, high = np.searchsorted(window.start_ns, [window.start_ns[row], window.end_ns[row]])
        inside[low:high] |= (window.track[low:high] == window.track[row]) & ~window.match(_BACKWARD)[low:high]
    launch = window.launch
    again = np.flatnonzero(window.on_device & (launch >= 0) & inside[launch])
    nodes = trial.nodes(again)

    def take(factor: float) -> Change:
        def change(changes: Changes) -> None:
            changes.device[nodes] = factor

        return change

    gain = trial.try_change(take(0.7), take(0.5), take(0.4))
    return trial.sight(
        len(spans), float(trial.lengths(spans).sum()), trial.rank_names(spans, np.ones(len(spans))), gain
    )
