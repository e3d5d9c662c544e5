"""The phases of a step when the host has left it while the device is still at work on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.steps.model import Phases, Steps

_TAIL = PHASE_NAMES.index("tail")
_BY_DEVICE = tuple(PHASE_NAMES.index(name) for name in ("h2d", "forward", "backward", "optimizer"))


def follow_device(trace: Trace, steps: Steps, phases: Phases, host: Phases) -> Phases:
    """Give the tail of a step that lies behind its host span the phases of the work that the device has left.

    `host` are the phases of the host spans. Work belongs to the phase that it was launched in, and so does the time
    that the device is idle before it.
    """
    work = _list_work(trace, steps, host)
    rows: list[tuple[int, int, int, int]] = []
    columns = (getattr(phases, name).tolist() for name in ("step", "phase", "start_ns", "end_ns"))
    for step, phase, start, end in zip(*columns, strict=True):
        left_ns = max(start, int(steps.host_end_ns[step]))
        if phase != _TAIL or end <= left_ns:
            rows.append((step, phase, start, end))
            continue
        rows += [(step, phase, start, left_ns)] if left_ns > start else []
        rows += [(step, code, low, high) for low, high, code in _follow(work.pick(step), left_ns, end)]
    found = np.array(rows, np.int64).reshape(-1, 4)
    return Phases(found[:, 0], found[:, 1], found[:, 2], found[:, 3])


@dataclass(frozen=True)
class _Work:
    """Device work by step and start: until when all work so far reaches, and the phase that it was launched in."""

    step: Ints
    end_ns: Ints
    phase: Ints

    def pick(self, step: int) -> _Work:
        low, high = np.searchsorted(self.step, (step, step + 1))
        return _Work(self.step[low:high], self.end_ns[low:high], self.phase[low:high])


def _list_work(trace: Trace, steps: Steps, host: Phases) -> _Work:
    scratch = trace.log.scratch
    rows, step, phase = scratch.column(), scratch.column(), scratch.column()
    for device in trace.find(trace.is_device_work):
        launch = trace.links.launch[device]
        launched_ns = trace.start_ns[launch]
        row = np.where(launch >= 0, steps.locate(launched_ns), -1)
        inside = (row >= 0) & (trace.end_ns[device] > steps.host_end_ns[row])
        rows.append(device[inside])
        step.append(row[inside])
        phase.append(host.locate(launched_ns[inside]))
    found, steps_of, phases_of = rows.finish(), step.finish(), phase.finish()
    order = np.lexsort((trace.start_ns[found], steps_of))
    phases_of = np.where(np.isin(phases_of, _BY_DEVICE), phases_of, _TAIL)
    return _Work(steps_of[order], trace.end_ns[found[order]], phases_of[order])


def _follow(work: _Work, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and phase of the stretches between two times, without a hole."""
    reached = np.clip(np.maximum.accumulate(work.end_ns), start, end) if len(work.end_ns) else work.end_ns
    adds = np.flatnonzero(np.diff(reached, prepend=start) > 0)
    codes = np.append(work.phase[adds], _TAIL)
    highs = np.append(reached[adds], end)
    last = np.append(codes[1:] != codes[:-1], True)
    at = start
    for high, code in zip(highs[last].tolist(), codes[last].tolist(), strict=True):
        if high > at:
            yield at, high, code
        at = max(at, high)
