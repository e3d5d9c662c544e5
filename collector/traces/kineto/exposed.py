"""Communication that nothing hides: when only collectives were at work."""

from __future__ import annotations

import numpy as np

from collector.format.intervals import EMPTY, Intervals, unite
from collector.format.phases import PHASE_PLACES
from collector.traces.families import find_family
from collector.traces.kineto.behind import Phases
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.model import Trace
from collector.traces.kineto.phases import find_thread
from collector.traces.kineto.scratch import blocks
from collector.traces.kineto.steps import Steps

_COMMUNICATION = PHASE_PLACES["communication"]
_WAIT = PHASE_PLACES["data_wait"]


def expose_communication(trace: Trace, steps: Steps, phases: Phases) -> Phases:
    """Give to the phase `communication` the time of a step in which a collective ran and nothing hid it.

    On a device that is a collective without a kernel or a memset beside it; on the host, a collective that holds the
    training thread, or that no operator on any thread runs beside. It is taken from the phase that the thread was in, so the phases still sum to the step; waiting
    for data stays waiting for data.
    """
    exposed = _find_on_device(trace) | _find_on_host(trace, steps)
    if not len(exposed.starts) or not len(phases.start_ns):
        return phases
    cuts = np.unique(np.concatenate([phases.start_ns, phases.end_ns, exposed.starts, exposed.ends]))
    starts, ends = cuts[:-1], cuts[1:]
    row = np.searchsorted(phases.start_ns, starts, side="right") - 1
    inside = (row >= 0) & (starts < phases.end_ns[np.maximum(row, 0)])
    starts, ends, row = starts[inside], ends[inside], row[inside]
    step, phase = phases.step[row], phases.phase[row]
    phase = np.where(_covers(exposed, starts) & (phase != _WAIT), _COMMUNICATION, phase)
    first = np.ones(len(starts), bool)
    first[1:] = (step[1:] != step[:-1]) | (phase[1:] != phase[:-1]) | (starts[1:] != ends[:-1])
    last = np.append(first[1:], True)
    return Phases(step[first], phase[first], starts[first], ends[last])


def sum_communication(trace: Trace, steps: Steps) -> Ints | None:
    """Return the time of each step in which a collective ran, hidden or not; None for a trace without one."""
    both = _unite(trace, trace.kinds.mask(Kind.COLLECTIVE, Kind.COMMUNICATION))
    if not len(both.starts):
        return None
    starts, ends = both.starts, both.ends
    length = np.concatenate([[0], np.cumsum(ends - starts)])

    def before(times: Ints) -> Ints:
        """Return how much of the communication lies before each time."""
        row = np.searchsorted(starts, times, side="right")
        over = np.maximum(ends[np.maximum(row - 1, 0)] - times, 0)
        return length[row] - np.where(row > 0, over, 0)

    return before(steps.end_ns) - before(steps.start_ns)


def _find_on_device(trace: Trace) -> Intervals:
    busy = _unite(trace, trace.kinds.mask(Kind.KERNEL, Kind.MEMSET))
    return _unite(trace, trace.kinds.mask(Kind.COLLECTIVE)) - busy


def _find_on_host(trace: Trace, steps: Steps) -> Intervals:
    communication = trace.kinds.kind == Kind.COMMUNICATION
    if not communication.any():
        return EMPTY
    held = communication & (trace.lanes.track == find_thread(trace, steps))
    waiting = np.array([find_family(name) == "communication" for name in trace.names], bool)[trace.columns.name]
    work = _unite(trace, (trace.kinds.kind == Kind.OPERATOR) & ~waiting | trace.is_device_work)
    return _unite(trace, held) | (_unite(trace, communication & ~held) - work)


def _unite(trace: Trace, mask: np.ndarray) -> Intervals:
    rows = trace.sort(mask)
    found: list[Intervals] = []
    last = EMPTY
    for block in blocks(len(rows)):
        starts = np.concatenate([last.starts, trace.start_ns[rows[block]]])
        joined = unite(starts, np.concatenate([last.ends, trace.end_ns[rows[block]]]))
        # The last one may go on in the next block.
        found.append(Intervals(joined.starts[:-1], joined.ends[:-1]))
        last = Intervals(joined.starts[-1:], joined.ends[-1:])
        trace.release()
    found.append(last)
    return Intervals(np.concatenate([part.starts for part in found]), np.concatenate([part.ends for part in found]))


def _covers(intervals: Intervals, times: Ints) -> np.ndarray:
    starts, ends = intervals.starts, intervals.ends
    if not len(starts):
        return np.zeros(len(times), bool)
    row = np.searchsorted(starts, times, side="right") - 1
    covered: np.ndarray = (row >= 0) & (times < ends[np.maximum(row, 0)])
    return covered
