"""Communication that nothing hides: when only collectives were at work."""

from __future__ import annotations

import numpy as np

from collector.format.intervals import EMPTY, Intervals, Ints, Mask, unite
from collector.format.phases import PHASE_PLACES
from collector.traces.families import find_family
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.steps.model import Phases, Steps, locate
from collector.traces.kineto.steps.phases import find_thread

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
    row = locate(phases.start_ns, phases.end_ns, starts)
    starts, ends, row = starts[row >= 0], ends[row >= 0], row[row >= 0]
    step, phase = phases.step[row], phases.phase[row]
    is_exposed = locate(exposed.starts, exposed.ends, starts) >= 0
    phase = np.where(is_exposed & (phase != _WAIT), _COMMUNICATION, phase)
    first = np.ones(len(starts), bool)
    first[1:] = (step[1:] != step[:-1]) | (phase[1:] != phase[:-1]) | (starts[1:] != ends[:-1])
    last = np.append(first[1:], True)
    return Phases(step[first], phase[first], starts[first], ends[last])


def sum_communication(trace: Trace, steps: Steps) -> Ints | None:
    """Return the time of each step in which a collective ran, hidden or not; None for a trace without one."""
    both = _unite(trace, trace.is_any(Kind.COLLECTIVE, Kind.COMMUNICATION))
    if not len(both.starts):
        return None
    inside = both & Intervals(steps.start_ns, steps.end_ns)
    total_ns = np.zeros(len(steps), np.int64)
    np.add.at(total_ns, locate(steps.start_ns, steps.end_ns, inside.starts), inside.ends - inside.starts)
    return total_ns


def _find_on_device(trace: Trace) -> Intervals:
    busy = _unite(trace, trace.is_any(Kind.KERNEL, Kind.MEMSET))
    return _unite(trace, trace.is_any(Kind.COLLECTIVE)) - busy


def _find_on_host(trace: Trace, steps: Steps) -> Intervals:
    communication = trace.kind == Kind.COMMUNICATION
    if not communication.any():
        return EMPTY
    held = communication & (trace.lanes.track == find_thread(trace, steps))
    waiting = trace.find_named(lambda name: find_family(name) == "communication")
    work = _unite(trace, (trace.kind == Kind.OPERATOR) & ~waiting | trace.is_device_work)
    return _unite(trace, held) | (_unite(trace, communication & ~held) - work)


def _unite(trace: Trace, mask: Mask) -> Intervals:
    rows = trace.sort(mask)
    found: list[Intervals] = []
    last = EMPTY
    for block in trace.log.scratch.blocks(len(rows)):
        starts = np.concatenate([last.starts, trace.start_ns[rows[block]]])
        joined = unite(starts, np.concatenate([last.ends, trace.end_ns[rows[block]]]))
        # The last one may go on in the next block.
        found.append(Intervals(joined.starts[:-1], joined.ends[:-1]))
        last = Intervals(joined.starts[-1:], joined.ends[-1:])
    found.append(last)
    return Intervals(np.concatenate([part.starts for part in found]), np.concatenate([part.ends for part in found]))
