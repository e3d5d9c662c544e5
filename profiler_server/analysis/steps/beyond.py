"""Steps that are so long that in one picture with them all others would lie flat on the floor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.steps import StepSelection
from profiler_server.diagnosis.limits.steps import CUT_RATIO, FAR_RATIO


@dataclass(frozen=True)
class Beyond:
    """`peak_ns` is the longest step that is shown whole; `step` and `duration_ns` are those beyond it."""

    peak_ns: int
    step: tuple[int, ...]
    duration_ns: tuple[int, ...]


def find_beyond(selection: StepSelection) -> Beyond | None:
    """Return the few steps that a picture of all of them leaves the top of, None where one scale fits all."""
    durations = selection.duration_ns
    usual = float(np.percentile(durations, 95)) if len(durations) else 0.0
    if not usual or durations.max() <= FAR_RATIO * usual:
        return None
    cut = durations > CUT_RATIO * usual
    return Beyond(int(durations[~cut].max()), tuple(selection.step[cut].tolist()), tuple(durations[cut].tolist()))
