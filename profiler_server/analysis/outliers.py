"""Training steps that took much longer than the others, each with what it spent the extra time on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from collector.schema.phases import PHASE_NAMES
from profiler_server.analysis.steps import Float64, Int64, Mask, read_integers, select_steps, train_steps

MIN_EXCESS_FRAC = 0.25
MIN_DEVIATIONS = 6.0
"""A step is an outlier when it exceeds the median by a quarter and by six robust deviations (1.4826 × MAD)."""
BULK_RATIO = 2.0
"""So is one that takes twice as long as nine steps in ten: where the usual steps spread widely, as behind a slow
loader, six deviations lie beyond anything that a reader of the chart would call usual."""
MIN_STEPS = 10
"""Fewer steps have no usual length to stand out from."""

Cause = Literal["warm_up", "window", "loader_start", "epoch_start", "gc", "phase"]


@dataclass(frozen=True)
class Outlier:
    """One slow step. `phase` grew most, by `phase_excess_ns` over its median; `cause` is why, where that is known."""

    step: int
    start_ns: int
    duration_ns: int
    ratio: float
    cause: Cause
    phase: str
    phase_excess_ns: int


@dataclass(frozen=True)
class Outliers:
    """`shown` are the slowest, slowest first; `count` is how many there are in all; `limit_ns` is where they begin.

    `by_bulk` says that the bulk of the steps set the limit, not the deviations.
    """

    count: int
    limit_ns: float | None
    by_bulk: bool
    shown: tuple[Outlier, ...]


def list_outliers(steps: pa.Table, limit: int = 20) -> Outliers:
    """Return the training steps that stand out. The median and deviation are those of the steps that are averaged."""
    selection = select_steps(steps)
    usual = selection.duration_ns[selection.kept]
    if len(usual) < MIN_STEPS:
        return Outliers(0, None, False, ())
    median = float(np.median(usual))
    deviation = 1.4826 * float(np.median(np.abs(usual - median)))
    spread_ns = median + max(MIN_EXCESS_FRAC * median, MIN_DEVIATIONS * deviation)
    bulk_ns = BULK_RATIO * float(np.percentile(usual, 90))
    limit_ns = min(spread_ns, bulk_ns)
    found = np.flatnonzero(selection.duration_ns > limit_ns)
    slowest = found[np.argsort(-selection.duration_ns[found], kind="stable")[:limit]]
    train = train_steps(steps)
    phases = np.stack([read_integers(train, f"{name}_ns") for name in PHASE_NAMES])
    typical = np.median(phases[:, selection.kept], axis=1)
    facts = _StepFacts(train, selection.warm_up, selection.detailed & ~selection.kept, selection.first_of_epoch)
    return Outliers(
        len(found),
        limit_ns,
        bulk_ns < spread_ns,
        tuple(_describe(int(at), phases[:, at] - typical, facts, median) for at in slowest),
    )


class _StepFacts:
    """The columns that a cause is read from."""

    def __init__(self, train: pa.Table, warm_up: Mask, window: Mask, first_of_epoch: Mask) -> None:
        self.step: Int64 = read_integers(train, "step")
        self.start_ns = read_integers(train, "start_ns")
        self.duration_ns = read_integers(train, "duration_ns")
        self.loader_start_ns = read_integers(train, "loader_start_ns")
        self.gc_ns = read_integers(train, "gc_ns")
        self.warm_up = warm_up
        self.window = window
        self.first_of_epoch = first_of_epoch

    def find_cause(self, at: int, excess_ns: float) -> Cause:
        """Return the first known cause that explains at least half of the excess, else that a phase grew."""
        if self.loader_start_ns[at] >= excess_ns / 2:
            return "loader_start"
        if self.gc_ns[at] >= excess_ns / 2:
            return "gc"
        if self.window[at]:
            return "window"
        if self.warm_up[at]:
            return "warm_up"
        return "epoch_start" if self.first_of_epoch[at] else "phase"


def _describe(at: int, excess_ns: Float64, facts: _StepFacts, median: float) -> Outlier:
    most = int(np.argmax(excess_ns))
    duration = int(facts.duration_ns[at])
    return Outlier(
        step=int(facts.step[at]),
        start_ns=int(facts.start_ns[at]),
        duration_ns=duration,
        ratio=duration / median if median else 0.0,
        cause=facts.find_cause(at, duration - median),
        phase=PHASE_NAMES[most],
        phase_excess_ns=int(excess_ns[most]),
    )
