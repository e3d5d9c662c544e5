"""Means over the last steps of a rank, for those who watch a run that records: Prometheus, OpenTelemetry, trackers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collector.format.parts import read_last_rows
from collector.format.phases import PHASE_NAMES
from collector.format.rank import RankRun, mark_steps
from collector.format.steps import (
    count_as_steps,
    mark_judged,
    measure_between,
    read_integers,
    select_steps,
    train_steps,
)

RECENT_STEPS = 50
"""Number of last steps in the means. The same steps are left out as on the pages."""
_COLUMNS = (
    *("kind", "step", "start_ns", "duration_ns", "detailed", "batch", "loader_start_ns"),
    *(f"{name}_ns" for name in PHASE_NAMES),
)


@dataclass(frozen=True)
class RecentSteps:
    """Means in ns over the last steady steps of a rank, up to the step `last`. `between_ns` is the time between steps,
    per step."""

    last: int
    step_ns: float
    between_ns: float
    phases_ns: Mapping[str, float]


def read_recent(rank: RankRun) -> RecentSteps | None:
    """Read the means over the last RECENT_STEPS steady steps of a rank; None if it has none. Raises as `RankRun.table`
    does."""
    # Rows between steps and rows in detailed windows may lie in between.
    rows = read_last_rows(rank.folder, "steps", _COLUMNS, 4 * RECENT_STEPS)
    counted = count_as_steps(mark_steps(rank, rows))
    train = train_steps(counted.steps)
    if train.num_rows and train["step"][0].as_py() > 1:
        train = mark_judged(train, warm_up=0)
    is_kept = select_steps(train).kept
    kept = np.flatnonzero(is_kept)[-RECENT_STEPS:]
    if not len(kept):
        return None
    # The step after a detailed window or a standstill includes their cost.
    usual = kept[is_kept[np.maximum(kept - 1, 0)]]
    between = 0.0 if counted.infers else float(measure_between(counted.every)[usual].sum()) / len(kept)
    return RecentSteps(
        last=int(train["step"][int(kept[-1])].as_py()),
        step_ns=float(read_integers(train, "duration_ns")[kept].mean()),
        between_ns=between,
        phases_ns={name: float(read_integers(train, f"{name}_ns")[kept].mean()) for name in PHASE_NAMES},
    )
