"""Tell the phases of a step from what the training thread was doing.

Loader, backward and optimizer leave marks in a trace. What lies between two marks is told from the marks on both
sides, as the declaration of the phases says; a trace without any mark is all forward. All time of the training thread
in the loader is data wait, also while the device still works on the step: a faster loader saves so much at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector.format.phases import PHASE_NAMES, PHASE_PLACES
from collector.traces.families import find_family
from collector.traces.kineto.classify import OPERATORS, Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.marks import BACKWARD, LOADER, OPTIMIZER
from collector.traces.kineto.model import Mask, Trace
from collector.traces.kineto.steps import Steps

LONGEST_PAUSE_NS = 1_000_000
"""For so long a thread may prepare the parameter update without a call that the trace knows."""
_PREPARATION = frozenset({"copy", "memory", "random"})

Span = tuple[int, int, str]


@dataclass(frozen=True)
class Phases:
    """Stretches in time order, without a hole within a step. `step` is the row in `Steps`, `phase` in PHASE_NAMES."""

    step: Ints
    phase: Ints
    start_ns: Ints
    end_ns: Ints

    def sums(self, steps: int) -> dict[str, Ints]:
        """Return the time of each phase per step."""
        total = np.zeros((len(PHASE_NAMES), steps), np.int64)
        np.add.at(total, (self.phase, self.step), self.end_ns - self.start_ns)
        return dict(zip(PHASE_NAMES, total, strict=True))

    def locate(self, times_ns: Ints) -> Ints:
        """Return the phase at each time, -1 for none."""
        if not len(self.start_ns):
            return np.full(len(times_ns), -1, np.int64)
        row = np.maximum(np.searchsorted(self.start_ns, times_ns, side="right") - 1, 0)
        inside = (times_ns >= self.start_ns[row]) & (times_ns < self.end_ns[row])
        return np.where(inside, self.phase[row], -1)


@dataclass(frozen=True)
class _Marks:
    """Sorted times of what phases are told from. `calls` are all operators and runtime calls of the training thread."""

    loader: tuple[Ints, Ints]
    optimizer: tuple[Ints, Ints]
    backward: tuple[Ints, Ints]
    work: Ints
    calls: tuple[Ints, Ints]


def find_phases(trace: Trace, steps: Steps) -> Phases:
    """Tell the phases of every step; within a step they leave no hole."""
    marks = _find_marks(trace, steps)
    rows: list[tuple[int, int, int, int]] = []
    for row, (start, end) in enumerate(zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)):
        known = sorted(_clip_marks(marks, start, end))
        spans = [*_fill(known, start, end, marks)]
        rows.extend((row, PHASE_PLACES[phase], first, last) for first, last, phase in spans if last > first)
    columns = np.array(rows, np.int64).reshape(-1, 4)
    return Phases(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3])


def _find_marks(trace: Trace, steps: Steps) -> _Marks:
    thread = find_thread(trace, steps)
    here = trace.lanes.track == thread
    work = trace.is_host_work & here & (trace.owner < 0) & ~_named(trace, LOADER) & ~_named(trace, OPTIMIZER)
    preparing = np.array([find_family(name) in _PREPARATION for name in trace.names], bool)
    work &= ~preparing[trace.columns.name] if len(preparing) else work
    return _Marks(
        _times(trace, here & _named(trace, LOADER)),
        _times(trace, here & _named(trace, OPTIMIZER)),
        _times(trace, trace.is_host_work & _named(trace, BACKWARD)),
        trace.start_ns[trace.sort(work)],
        _times(trace, here & (trace.caller < 0) & trace.kinds.mask(*OPERATORS, Kind.RUNTIME)),
    )


def find_thread(trace: Trace, steps: Steps) -> int:
    """Return the track of the training thread: of the steps, or else the busiest; -1 for none."""
    if steps.thread >= 0:
        return steps.thread
    rows = np.flatnonzero(trace.kinds.mask(Kind.OPERATOR, Kind.ANNOTATION))
    return int(np.bincount(trace.lanes.track[rows]).argmax()) if len(rows) else -1


def _named(trace: Trace, pattern: re.Pattern[str]) -> Mask:
    wanted = np.array([bool(pattern.match(name)) for name in trace.names], bool)
    return wanted[trace.columns.name] if len(wanted) else np.zeros(len(trace.columns), bool)


def _times(trace: Trace, mask: Mask) -> tuple[Ints, Ints]:
    rows = trace.sort(mask)
    found = trace.start_ns[rows], trace.end_ns[rows]
    trace.release()
    return found


def _clip_marks(marks: _Marks, start: int, end: int) -> list[Span]:
    """Return the marked stretches of one step, without overlap: loader and optimizer first, backward between them."""
    known: list[Span] = []
    for phase, times in (("data_wait", marks.loader), ("optimizer", marks.optimizer)):
        for first, last in _clip(times, start, end):
            if not known or all(last <= low or first >= high for low, high, _ in known):
                known.append((first, last, phase))
    known.sort()
    backward = _clip(marks.backward, start, end)
    if backward:
        edges = [start, *(edge for low, high, _ in known for edge in (low, high)), end]
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            inside = [(max(first, low), min(last, high)) for first, last in backward if first < high and last > low]
            if inside:
                known.append((inside[0][0], max(last for _, last in inside), "backward"))
    return known


def _clip(times: tuple[Ints, Ints], start: int, end: int) -> list[tuple[int, int]]:
    """Return what of the marks lies inside a step, also of one that began before it: a step starts when the device
    has done the work of the last one, and the host may be ahead of that."""
    starts, ends = times
    first = int(np.searchsorted(np.maximum.accumulate(ends), start, side="right"))
    chosen = slice(first, int(np.searchsorted(starts, end)))
    pairs = zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True)
    return [(max(low, start), min(high, end)) for low, high in pairs if high > max(low, start)]


def _fill(known: list[Span], start: int, end: int, marks: _Marks) -> Iterator[Span]:
    at, before = start, ""
    for index in range(len(known) + 1):
        first, last, phase = known[index] if index < len(known) else (end, end, "")
        if first > at:
            yield from _name_hole(at, first, before, phase, marks)
        if last > first:
            yield first, last, phase
        at, before = max(at, last), phase


def _name_hole(start: int, end: int, before: str, after: str, marks: _Marks) -> Iterator[Span]:
    """Name the time between two marks; "" stands for the edge of the step."""
    if after == "data_wait":
        yield start, end, "tail" if before == "optimizer" else "gap"
    elif before == "data_wait" or (not before and after == "optimizer" and len(marks.backward[0])):
        # A batch is there: preparation lasts until the first operator that is more than a copy.
        at = int(np.searchsorted(marks.work, start))
        begin = int(marks.work[at]) if at < len(marks.work) and marks.work[at] < end else end
        yield start, begin, "h2d"
        yield begin, end, "forward"
    elif before in ("backward", "optimizer") and after == "optimizer":
        yield from _part_idle(start, end, marks.calls)
    elif before in ("backward", "optimizer"):
        yield start, end, "forward" if after == "backward" else "tail"
    else:
        yield start, end, "forward"


def _part_idle(start: int, end: int, calls: tuple[Ints, Ints]) -> Iterator[Span]:
    """Part the time before an optimizer's step: what prepares the step, and long stretches in which nothing runs."""
    inside = slice(int(np.searchsorted(calls[1], start, side="right")), int(np.searchsorted(calls[0], end)))
    lows = np.append(start, np.maximum.accumulate(calls[1][inside]))
    highs = np.append(calls[0][inside], end)
    at = start
    for place in np.flatnonzero(highs - lows > LONGEST_PAUSE_NS).tolist():
        low, high = int(lows[place]), int(highs[place])
        yield at, low, "optimizer"
        yield low, high, "gap"
        at = high
    yield at, end, "optimizer"
