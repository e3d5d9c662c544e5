"""Training steps that took much longer than the other steps, each with the cause of the extra time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints, Mask
from collector.format.phases import FORWARD, PHASE_LABELS, PHASE_NAMES
from collector.format.steps import StepSelection, read_integers, select_steps, train_steps
from profiler_server.analysis.steps.interruptions import StepCauses
from profiler_server.diagnosis.limits.steps import BULK_RATIO, DEVIATIONS, EXCESS_FRAC, LEAST_USUAL
from profiler_server.facts.steps import NOTHING, Held, Interruptions
from profiler_server.format import format_duration

Cause = Literal["stood", "held", "validation", "warm_up", "window", "loader_start", "epoch_start", "gc", "phase"]


@dataclass(frozen=True)
class Outlier:
    """One slow step. `ratio` is its duration divided by the median step. `phase` grew most, by `phase_excess_ns` over
    its median. `cause` is the reason, "phase" if only the phase is known.

    `held` is the named interruption, such as a checkpoint or a compilation, that took at least half of the excess, None
    without one. `held_ns` is its time. `is_warm_up` means that the step is in no average because it is of the warm-up.
    """

    step: int
    start_ns: int
    duration_ns: int
    ratio: float
    cause: Cause
    phase: str
    phase_excess_ns: int
    held: Held | None = None
    held_ns: int = 0
    is_warm_up: bool = False


@dataclass(frozen=True)
class Outliers:
    """The outliers among the steps. `count` is the number of all outliers; `shown` are the slowest of them, slowest
    first. `limit_ns` is the duration beyond which a step is an outlier, None with too few steps.

    `by_bulk` is true if the limit follows from the 90th percentile of the steps, not from their deviations.
    """

    count: int
    limit_ns: float | None
    by_bulk: bool
    shown: tuple[Outlier, ...]


def list_outliers(steps: pa.Table, limit: int = 20, interruptions: Interruptions = NOTHING) -> Outliers:
    """Return the outliers among training steps, measured against the median and deviation of the steady steps. At most
    `limit` are shown.

    If an interruption of the rank explains an outlier, the interruption is its cause.
    """
    selection = select_steps(steps)
    usual = selection.duration_ns[selection.kept]
    if len(usual) < LEAST_USUAL:
        return Outliers(0, None, False, ())
    median = float(np.median(usual))
    deviation = 1.4826 * float(np.median(np.abs(usual - median)))
    spread_ns = median + max(EXCESS_FRAC * median, DEVIATIONS * deviation)
    bulk_ns = BULK_RATIO * float(np.percentile(usual, 90))
    limit_ns = min(spread_ns, bulk_ns)
    found = np.flatnonzero(selection.duration_ns > limit_ns)
    slowest = found[np.argsort(-selection.duration_ns[found], kind="stable")[:limit]]
    train = train_steps(steps)
    phases = np.stack([read_integers(train, f"{name}_ns") for name in PHASE_NAMES])
    typical = np.median(phases[:, selection.kept], axis=1)
    facts = _StepFacts(train, selection, interruptions)
    return Outliers(
        len(found),
        limit_ns,
        bulk_ns < spread_ns,
        tuple(_describe(int(at), phases[:, at] - typical, facts, median) for at in slowest),
    )


_WORDS: Mapping[Cause, str] = {
    "stood": "the job stood still, not in the figures",
    "warm_up": "warm-up, not in the figures",
    "window": "in a detailed window or beside its reading, whose cost it carries",
    "loader_start": "starting the loader and its workers",
    "epoch_start": "first of an epoch",
    "gc": "garbage collection",
    "validation": "validation: forward passes without gradients that the other steps have not",
}


def explain_outlier(outlier: Outlier) -> str:
    """Return text on the part of the step that grew and its cause: "Tail +318 ms; checkpoint (torch.save) 320 ms"."""
    grew = f"{PHASE_LABELS[outlier.phase]} +{format_duration(outlier.phase_excess_ns)}"
    known = _WORDS.get(outlier.cause)
    if outlier.cause == "held" and outlier.held is not None:
        reason = f": {outlier.held.reason}" if outlier.held.reason else ""
        known = f"{outlier.held.label} {format_duration(outlier.held_ns)}{reason}"
    text = f"{grew}; {known}" if known else grew
    return f"{text} ({_WORDS['warm_up']})" if outlier.is_warm_up and outlier.cause != "warm_up" else text


class _StepFacts:
    def __init__(self, train: pa.Table, selection: StepSelection, interruptions: Interruptions) -> None:
        self.step: Ints = read_integers(train, "step")
        self.start_ns = read_integers(train, "start_ns")
        self.duration_ns = read_integers(train, "duration_ns")
        self._loader_start_ns = read_integers(train, "loader_start_ns")
        self._gc_ns = read_integers(train, "gc_ns")
        self._selection = selection
        ends_ns = self.start_ns + self.duration_ns
        self.held = StepCauses(interruptions, self.start_ns, ends_ns, selection.kept)
        no_grad = read_integers(train, "no_grad_forwards", absent=0)
        self._validates: Mask = no_grad > (float(np.median(no_grad[selection.kept])) if selection.kept.any() else 0.0)

    def is_warm_up(self, at: int) -> bool:
        return bool(self._selection.warm_up[at] and not self._selection.kept[at])

    def find_cause(self, at: int, excess_ns: float, forward_excess_ns: float, held: Held | None) -> Cause:
        """Return the first cause that applies to the step with index `at`; "phase" if none does."""
        selection = self._selection
        known: tuple[tuple[Cause, bool], ...] = (
            ("stood", bool(selection.stood[at])),
            ("held", held is not None and held.kind != "range"),
            ("validation", bool(self._validates[at]) and forward_excess_ns >= excess_ns / 2),
            ("loader_start", self._loader_start_ns[at] >= excess_ns / 2),
            ("gc", self._gc_ns[at] >= excess_ns / 2),
            ("held", held is not None),
            ("window", bool(selection.detailed[at] and not selection.kept[at])),
            ("warm_up", bool(selection.warm_up[at])),
            ("epoch_start", bool(selection.first_of_epoch[at])),
        )
        return next((cause for cause, applies in known if applies), "phase")


def _describe(at: int, excess_ns: Floats, facts: _StepFacts, median: float) -> Outlier:
    most = int(np.argmax(excess_ns))
    duration = int(facts.duration_ns[at])
    held, held_ns = facts.held.find(at, duration - median) or (None, 0)
    return Outlier(
        step=int(facts.step[at]),
        start_ns=int(facts.start_ns[at]),
        duration_ns=duration,
        ratio=duration / median if median else 0.0,
        cause=facts.find_cause(at, duration - median, float(excess_ns[FORWARD]), held),
        phase=PHASE_NAMES[most],
        phase_excess_ns=int(excess_ns[most]),
        held=held,
        held_ns=held_ns,
        is_warm_up=facts.is_warm_up(at),
    )
