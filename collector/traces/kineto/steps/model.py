"""The steps and phases of a trace, the names that mark them, and the notes on how they were found."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of, format_percent

LOADER = re.compile(r"enumerate\(DataLoader\)")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step")
BACKWARD = re.compile(r"autograd::engine::evaluate_function|torch::autograd::|\w+Backward\d*$")
MANY_PER_STEP = 2
CUT_OFF_SHARE = 0.8
"""If a last step has fewer device events than this share of the previous step's events, it is incomplete and is left
out. As in torch-tb-profiler, counts are compared: an outlier makes the previous step longer, but launches no more
work."""


@dataclass(frozen=True)
class Steps:
    """Steps in time order, without overlap. `host_*` are the bounds of the step's marker on the host; `start_ns` and
    `end_ns` are the bounds of the step.

    `cut_off` are the numbers of incomplete last steps, which are left out. `thread` is the track of the training
    thread, -1 if unknown. `own` is None unless the user chose the steps; if so, `own` is the number of steps that the
    trace itself marks.
    """

    number: Ints
    host_start_ns: Ints
    host_end_ns: Ints
    start_ns: Ints
    end_ns: Ints
    how: str
    confidence_frac: float
    markers: bool
    thread: int = -1
    cut_off: tuple[int, ...] = ()
    own: int | None = None

    def __len__(self) -> int:
        return len(self.number)

    def locate(self, times_ns: Ints, host: bool = True) -> Ints:
        """Return the row of the step at each time, -1 outside; with `host`, markers on the host bound a step."""
        starts, ends = (self.host_start_ns, self.host_end_ns) if host else (self.start_ns, self.end_ns)
        return locate(starts, ends, times_ns)


@dataclass(frozen=True)
class Phases:
    """Time ranges of one phase each, in time order, without gaps in a step. `step` is the row in `Steps`, `phase` the
    index in PHASE_NAMES.
    """

    step: Ints
    phase: Ints
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int]]) -> Phases:
        return cls(*np.array(rows, np.int64).reshape(-1, 4).T)

    def sums(self, steps: int) -> dict[str, Ints]:
        total = np.zeros((len(PHASE_NAMES), steps), np.int64)
        np.add.at(total, (self.phase, self.step), self.end_ns - self.start_ns)
        return dict(zip(PHASE_NAMES, total, strict=True))

    def locate(self, times_ns: Ints) -> Ints:
        """Return the index in PHASE_NAMES of the phase at each time, -1 outside of phases."""
        return np.append(self.phase, -1)[locate(self.start_ns, self.end_ns, times_ns)]


def locate(starts: Ints, ends: Ints, times_ns: Ints) -> Ints:
    """Return the row of the range at each time, -1 outside of ranges. Ranges are in time order, without overlap."""
    if not len(starts):
        return np.full(len(times_ns), -1, np.int64)
    row = np.searchsorted(starts, times_ns, side="right") - 1
    return np.where((row >= 0) & (times_ns < ends[np.maximum(row, 0)]), row, -1)


def describe_steps(steps: Steps) -> list[Warn]:
    warnings = []
    if steps.how == "whole":
        text = (
            "No step can be told apart in this trace, so all of it counts as one step. "
            "Call prof.step() after each step, or record more steps, to get figures per step; or import it again and "
            "choose the steps by hand: --steps-from optimizer, or a regular expression for the names that begin them."
        )
        warnings.append(Warn("trace_without_steps", text))
    elif not steps.markers:
        which = "The one step of this trace was" if len(steps) == 1 else f"The {len(steps):,} steps of this trace were"
        sure = f"{format_percent(steps.confidence_frac)} sure; import it again with --steps-from to choose them by hand"
        found = f"{which} found by {steps.how}, not by step markers ({sure})."
        warnings.append(Warn("steps_inferred", found if steps.own is None else f"{which} chosen by {steps.how}."))
    if steps.own and len(steps) >= MANY_PER_STEP * steps.own:
        text = (
            f"The trace itself marks {format_number_of(steps.own, 'step')}, each of which holds about "
            f"{len(steps) / steps.own:,.0f} of those chosen by --steps-from: figures are per such part. For figures per "
            "step choose a name that begins each step once, or import it without --steps-from."
        )
        warnings.append(Warn("steps_within_steps", text))
    if steps.cut_off:
        first, more = steps.cut_off[0], len(steps.cut_off) > 1
        which = (
            f"Steps {first} to {steps.cut_off[-1]}, the last ones, are" if more else f"Step {first}, the last one, is"
        )
        text = (
            f"{which} left out of every average: the recording ended before their work on the device did (a last step "
            f"counts only if it launched at least {format_percent(CUT_OFF_SHARE)} of the device events of the one before)."
        )
        warnings.append(Warn("step_cut_off", text))
    return warnings
