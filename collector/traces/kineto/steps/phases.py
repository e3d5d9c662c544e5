"""Derive the phases of a step from the training thread's work.

Loader, backward and optimizer leave marks in a trace. The time between two marks gets its phase from the marks on both
sides, as declared with the phases. In a trace without any mark, the forward is all time in which anything runs. All
time of the training thread in the loader is data wait, even while the device still works on the step: a faster loader
saves at most this time.

After the host has left a step, the device may still work on the step. The host's work then belongs to the next step, so
the phases are those of the device (`follow_device`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collector.format.intervals import EMPTY, Intervals, Ints, Mask, unite
from collector.format.phases import COMMUNICATION, COMPUTING, DATA_WAIT, H2D, PHASE_PLACES, TAIL
from collector.traces.families import find_family
from collector.traces.kineto.classify.kinds import OPERATORS, Kind
from collector.traces.kineto.classify.trace import NEVER_NS, Trace
from collector.traces.kineto.steps.model import BACKWARD, LOADER, OPTIMIZER, Phases, Steps, locate

LONGEST_PAUSE_NS = 1_000_000
"""If nothing recorded runs for longer than this before an update, or in an inference trace, that time is gap."""
_PREPARATION = frozenset({"copy", "memory", "random"})

Span = tuple[int, int, str]


class _Times(NamedTuple):
    """Time ranges sorted by start. `reached` is the latest end of all ranges up to each range."""

    starts: Ints
    ends: Ints
    reached: Ints

    def find(self, start: int, end: int) -> slice:
        """Return the rows from the first range that ends after `start` to the last range that begins before `end`."""
        first = np.searchsorted(self.reached, start, side="right")
        return slice(int(first), int(np.searchsorted(self.starts, end)))


@dataclass(frozen=True)
class _Marks:
    """The times in a trace that mark phases, each sorted by start: calls of the loader, the optimizer and the backward.

    `work` has the starts of the training thread's host work, without copies. `calls` are the outermost operators and
    runtime calls of this thread. `busy` is the time in which anything ran, in an inference trace; None in other traces.
    An inference trace has neither a backward nor an optimizer.
    """

    loader: _Times
    optimizer: _Times
    backward: _Times
    work: Ints
    calls: _Times
    busy: _Times | None


def find_phases(trace: Trace, steps: Steps) -> Phases:
    """Return the phases of every step; they leave no gap within a step."""
    marks = _find_marks(trace, steps)
    found = _derive_phases(marks, steps.start_ns, steps.end_ns)
    if (steps.end_ns > steps.host_end_ns).any():
        return follow_device(trace, steps, found, _derive_phases(marks, steps.host_start_ns, steps.host_end_ns))
    return found


def _derive_phases(marks: _Marks, starts: Ints, ends: Ints) -> Phases:
    """Return the phases of the steps from `starts` to `ends`, derived from the work of the host."""
    rows: list[tuple[int, int, int, int]] = []
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        known = sorted(_clip_marks(marks, start, end))
        spans = [*_fill(known, start, end, marks)]
        rows.extend((row, PHASE_PLACES[phase], first, last) for first, last, phase in spans if last > first)
    return Phases.of(rows)


def _find_marks(trace: Trace, steps: Steps) -> _Marks:
    thread = find_thread(trace, steps)
    here = trace.lanes.track == thread
    work = (
        trace.is_host_work
        & here
        & (trace.owner < 0)
        & ~trace.find_named(LOADER.match)
        & ~trace.find_named(OPTIMIZER.match)
    )
    backward = _times(trace, trace.is_host_work & trace.find_named(BACKWARD.match))
    optimizer = _times(trace, here & trace.find_named(OPTIMIZER.match))
    calls = here & (trace.caller < 0) & trace.is_any(*OPERATORS, Kind.RUNTIME)
    only_infers = not len(backward.starts) and not len(optimizer.starts)
    work &= ~trace.find_named(lambda name: find_family(name) in _PREPARATION)
    return _Marks(
        _times(trace, here & trace.find_named(LOADER.match)),
        optimizer,
        backward,
        trace.take(trace.start_ns, trace.sort(work)),
        _times(trace, calls),
        _times(trace, calls | trace.is_device_work) if only_infers else None,
    )


def find_thread(trace: Trace, steps: Steps) -> int:
    """Return the track of the training thread: the track of the steps, or else the busiest track; -1 if none."""
    if steps.thread >= 0:
        return steps.thread
    return trace.find_busiest(np.flatnonzero(trace.is_any(Kind.OPERATOR, Kind.ANNOTATION)))


def _times(trace: Trace, mask: Mask) -> _Times:
    rows = trace.sort(mask)
    starts, ends = trace.take(trace.start_ns, rows), trace.take(trace.end_ns, rows)
    reached, latest = trace.log.scratch.column(), np.iinfo(np.int64).min
    for block in trace.log.scratch.blocks(len(ends)):
        until = np.maximum.accumulate(np.maximum(ends[block], latest))
        reached.append(until)
        latest = int(until[-1])
    return _Times(starts, ends, reached.finish())


def _clip_marks(marks: _Marks, start: int, end: int) -> list[Span]:
    """Return the ranges of a step that have a mark, without overlap: those of loader and optimizer, and in each gap
    between these ranges one of the backward.
    """
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


def _clip(times: _Times, start: int, end: int) -> list[tuple[int, int]]:
    """Return the marked ranges clipped to a step, including ranges that began before the step.

    A step starts when the device has finished the previous step. By then, the host may already work on this step.
    """
    chosen = times.find(start, end)
    pairs = zip(times.starts[chosen].tolist(), times.ends[chosen].tolist(), strict=True)
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
    """Yield the phases between two marks of the phases `before` and `after`, "" at the edge of the step."""
    if marks.busy is not None and after == "data_wait":
        yield from _part_inference(start, end, before, marks)
    elif marks.busy is not None and not before and not after:
        yield from _part_idle(start, end, marks.busy, "forward")
    elif after == "data_wait":
        yield start, end, "tail" if before == "optimizer" else "gap"
    elif before == "data_wait" or (not before and after == "optimizer" and len(marks.backward.starts)):
        # A batch is there: preparation lasts until the first operator that is more than a copy.
        begin = _find_work(marks, start, end)
        yield start, begin, "h2d"
        yield begin, end, "forward"
    elif before not in ("backward", "optimizer"):
        yield start, end, "forward"
    elif after == "optimizer":
        yield from _part_idle(start, end, marks.calls, "optimizer")
    else:
        yield start, end, "forward" if after == "backward" else "tail"


def _find_work(marks: _Marks, start: int, end: int) -> int:
    """Return the first start of work in a time range; if no work starts, the end of the range."""
    at = int(np.searchsorted(marks.work, start))
    return min(int(marks.work[at]), end) if at < len(marks.work) else end


def _part_inference(start: int, end: int, before: str, marks: _Marks) -> Iterator[Span]:
    """Yield the phases between two batches of an inference trace: preparation, work of host or device, and pauses."""
    busy = marks.busy or marks.calls
    begin = _find_work(marks, start, end)
    yield start, begin, "h2d" if before == "data_wait" and begin < end else "gap"
    ends = busy.ends[slice(*np.searchsorted(busy.starts, (begin, end)))]
    last = min(max(int(ends.max(initial=begin)), begin), end)
    yield from _part_idle(begin, last, busy, "forward")
    yield last, end, "gap"


def _part_idle(start: int, end: int, calls: _Times, phase: str) -> Iterator[Span]:
    """Yield a time range as `phase`, except pauses of more than LONGEST_PAUSE_NS, which are yielded as `gap`."""
    inside = calls.find(start, end)
    lows = np.append(start, calls.reached[inside])
    highs = np.append(calls.starts[inside], end)
    at = start
    for place in np.flatnonzero(highs - lows > LONGEST_PAUSE_NS).tolist():
        low, high = int(lows[place]), int(highs[place])
        yield at, low, phase
        yield low, high, "gap"
        at = high
    yield at, end, phase


_BY_DEVICE = (H2D, *(PHASE_PLACES[name] for name in COMPUTING))


def follow_device(trace: Trace, steps: Steps, phases: Phases, host: Phases) -> Phases:
    """Return the phases with the tail of each step replaced by the phases of the device work that still runs in it.

    The tail begins at the end of the step's host span; `host` are the phases of the host spans. Device work has the
    phase in which it was launched. The device's idle time before the work has the same phase.
    """
    step_of, work_end_ns, launched_in = _list_work(trace, steps, host)
    rows: list[tuple[int, int, int, int]] = []
    columns = (getattr(phases, name).tolist() for name in ("step", "phase", "start_ns", "end_ns"))
    for step, phase, start, end in zip(*columns, strict=True):
        left_ns = max(start, int(steps.host_end_ns[step]))
        if phase != TAIL or end <= left_ns:
            rows.append((step, phase, start, end))
            continue
        rows += [(step, phase, start, left_ns)] if left_ns > start else []
        mine = slice(*np.searchsorted(step_of, (step, step + 1)))
        spans = _follow(work_end_ns[mine], launched_in[mine], left_ns, end)
        rows += [(step, code, low, high) for low, high, code in spans]
    return Phases.of(rows)


def _list_work(trace: Trace, steps: Steps, host: Phases) -> tuple[Ints, Ints, Ints]:
    """Return step, end and phase of the launch of the device work that outlasts its step on the host, in order."""
    columns = [trace.log.scratch.column() for _ in range(4)]
    for device in trace.find(trace.is_device_work):
        launched_ns = trace.find_launch_ns(device, NEVER_NS)
        row = steps.locate(launched_ns)
        inside = (row >= 0) & (trace.end_ns[device] > steps.host_end_ns[row])
        values = row, trace.start_ns[device], trace.end_ns[device], host.locate(launched_ns)
        for column, found in zip(columns, values, strict=True):
            column.append(found[inside])
    step, start_ns, end_ns, phase = (column.finish() for column in columns)
    order = np.lexsort((start_ns, step))
    return step[order], end_ns[order], np.where(np.isin(phase, _BY_DEVICE), phase, TAIL)[order]


def _follow(ends_ns: Ints, phase: Ints, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and phase of consecutive ranges that fill the time from `start` to `end`."""
    reached = np.clip(np.maximum.accumulate(ends_ns), start, end)
    adds = np.flatnonzero(np.diff(reached, prepend=start) > 0)
    codes = np.append(phase[adds], TAIL)
    highs = np.append(reached[adds], end)
    last = np.append(codes[1:] != codes[:-1], True)
    at = start
    for high, code in zip(highs[last].tolist(), codes[last].tolist(), strict=True):
        if high > at:
            yield at, high, code
        at = max(at, high)


def expose_communication(trace: Trace, steps: Steps, phases: Phases) -> Phases:
    """Return the phases in which exposed communication has the phase `communication`: a collective ran, and no other
    work hid it.

    On a device, the collective must run without a kernel or a memset beside it. On the host, the collective must block
    the training thread, or run while no other operator and no device work runs. The time is taken from the thread's
    phase, so the phases still sum to the step. Data wait stays data wait.
    """
    on_device = _unite(trace, trace.is_any(Kind.COLLECTIVE)) - _unite(trace, trace.is_any(Kind.KERNEL, Kind.MEMSET))
    exposed = on_device | _find_on_host(trace, steps)
    if not len(exposed.starts) or not len(phases.start_ns):
        return phases
    cuts = np.unique(np.concatenate([phases.start_ns, phases.end_ns, exposed.starts, exposed.ends]))
    starts, ends = cuts[:-1], cuts[1:]
    row = locate(phases.start_ns, phases.end_ns, starts)
    starts, ends, row = starts[row >= 0], ends[row >= 0], row[row >= 0]
    step, phase = phases.step[row], phases.phase[row]
    is_exposed = locate(exposed.starts, exposed.ends, starts) >= 0
    phase = np.where(is_exposed & (phase != DATA_WAIT), COMMUNICATION, phase)
    first = np.ones(len(starts), bool)
    first[1:] = (step[1:] != step[:-1]) | (phase[1:] != phase[:-1]) | (starts[1:] != ends[:-1])
    last = np.append(first[1:], True)
    return Phases(step[first], phase[first], starts[first], ends[last])


def sum_communication(trace: Trace, steps: Steps) -> Ints | None:
    """Return for each step the time in ns in which a collective ran, hidden or not; None without collectives."""
    both = _unite(trace, trace.is_any(Kind.COLLECTIVE, Kind.COMMUNICATION))
    if not len(both.starts):
        return None
    inside = both & Intervals(steps.start_ns, steps.end_ns)
    total_ns = np.zeros(len(steps), np.int64)
    np.add.at(total_ns, locate(steps.start_ns, steps.end_ns, inside.starts), inside.ends - inside.starts)
    return total_ns


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
