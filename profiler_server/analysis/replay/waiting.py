"""What waits in a window, for its graph: points at which a thread may wait, and waits of one stream for another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Intervals, Ints, Mask, unite
from profiler_server.analysis.replay.window import CALL, OPERATOR, Window
from profiler_server.diagnosis.limits.replay import (
    AT_ONCE_NS,
    FULL_QUEUE,
    LAST_FRAC,
    LONG_LAUNCH_NS,
    LONG_TURN_NS,
    NEAR_NS,
    TOLERANCE_NS,
)

SYNC = re.compile(r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|^(cuda|hip)(Free|Memcpy|Memcpy2D)$")
"""Calls that return when device work has ended."""
MARK, LAUNCH, WAIT, QUEUE = -1, 0, 1, 2
"""Kinds of points: a mark, a launch, a wait for work, and a wait for room in the launch queue."""
_COPY = re.compile("Memcpy")


@dataclass(frozen=True)
class Points:
    """Points of all threads, each thread in order: the thread (`track`), the slice (`row`, -1 for a mark), the kind,
    and the times of a point."""

    track: Ints
    row: Ints
    kind: Ints
    begin_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Handoff:
    """Work of a thread (`worker`) during a pause of another thread (`waiter`), with the times of the pause and of the
    work.
    """

    waiter: int
    worker: int
    stop_ns: int
    go_on_ns: int
    begin_ns: int
    end_ns: int


def list_points(window: Window, handoffs: list[Handoff]) -> Points:
    """Return the points of all threads that launch work. `handoffs` gives the points at which threads take turns."""
    parts = [_list_of_thread(window, track, handoffs) for track in window.threads]
    return Points(*(np.concatenate([getattr(part, name) for part in parts]) for name in Points.__dataclass_fields__))


def _list_of_thread(window: Window, track: int, handoffs: list[Handoff]) -> Points:
    waiting = (window.kind == CALL) & window.match(SYNC)
    rows = np.flatnonzero((window.track == track) & (window.list_launches() | waiting))
    rows = rows[_find_outermost(window, rows)]
    begin, end = window.start_ns[rows], window.end_ns[rows]
    blocks, queues = _find_blocking(window, rows), _find_queued(window, rows) & ~waiting[rows]
    queues &= ~blocks
    marks = _list_marks(window, track, handoffs)
    # A call that waits for its own copy becomes two points: the launch and the wait. A call that waits for a place in
    # the queue begins with that wait.
    row = np.concatenate([rows, rows[blocks], rows[queues], np.full(len(marks), -1)])
    own = np.where(waiting[rows] & ~blocks, WAIT, LAUNCH)
    more = [np.full(count, kind) for count, kind in ((blocks.sum(), WAIT), (queues.sum(), QUEUE), (len(marks), MARK))]
    kind = np.concatenate([own, *more])
    begins = np.concatenate([np.where(queues, end, begin), begin[blocks], begin[queues], marks])
    ends = np.concatenate([np.where(blocks, begin, end), end[blocks], end[queues], marks])
    order = np.lexsort((ends, begins))
    return Points(np.full(len(row), track), row[order], kind[order], begins[order], ends[order])


def _find_outermost(window: Window, rows: Ints) -> Mask:
    """Return a mask of the calls outside of other calls. A runtime call may contain a driver call."""
    if not len(rows):
        return np.zeros(0, bool)
    reach = np.maximum.accumulate(window.end_ns[rows])
    return np.concatenate([[True], window.start_ns[rows][1:] >= reach[:-1]])


def _find_blocking(window: Window, rows: Ints) -> Mask:
    done = np.full(len(window.ids), np.iinfo(np.int64).max)
    copies = np.flatnonzero(window.on_device & (window.launch >= 0))
    done[window.launch[copies]] = window.end_ns[copies]
    return (done[rows] <= window.end_ns[rows] + TOLERANCE_NS) & window.match(_COPY)[rows]


def _find_queued(window: Window, rows: Ints) -> Mask:
    """Return a mask of the calls that take long while hundreds of launches are pending. The queue of launches was then
    full.
    """
    work = np.flatnonzero(window.on_device & (window.launch >= 0))
    launched = np.sort(window.start_ns[window.launch[work]])
    done = np.sort(window.end_ns[work])
    ends = window.end_ns[rows]
    waiting = np.searchsorted(launched, ends, side="right") - np.searchsorted(done, ends, side="right")
    return (ends - window.start_ns[rows] >= LONG_LAUNCH_NS) & (waiting >= FULL_QUEUE)


def _list_marks(window: Window, track: int, handoffs: list[Handoff]) -> Ints:
    """Return the times at which a thread hands over to another thread or takes over from it, and the time of the
    thread's end.
    """
    times = {time for turn in handoffs if turn.waiter == track for time in (turn.stop_ns, turn.go_on_ns)}
    times |= {time for turn in handoffs if turn.worker == track for time in (turn.begin_ns, turn.end_ns)}
    last, over = int(window.end_ns[window.track == track].max()), int(window.step_ends_ns[-1])
    return np.array(sorted(times | {min(last, over)}), np.int64)


def find_handoffs(window: Window) -> list[Handoff]:
    """Return the pauses of the first thread in which another thread works.

    The work must begin and end in the pause. In a long pause, the last part of the work may end after the first thread
    has resumed.
    """
    waiter, *workers = window.threads
    busy = _unite_work(window, waiter)
    found: list[Handoff] = []
    for worker in workers:
        theirs = _unite_work(window, worker)
        stop, go_on = busy.ends[:-1], busy.starts[1:]
        first = np.searchsorted(theirs.starts, stop)
        last = np.searchsorted(theirs.ends, go_on, side="right") - 1
        before = np.append(theirs.ends, 0)[first - 1]  # where nothing is before, it ended at 0
        after = np.append(theirs.starts, np.iinfo(np.int64).max)[last + 1]
        lag = go_on - theirs.ends[np.maximum(last, 0)]
        alone = (after >= go_on) | ((go_on - stop >= LONG_TURN_NS) & (lag <= LAST_FRAC * (go_on - stop)))
        taken = (last >= first) & ((first == 0) | (before <= stop)) & alone
        found += [
            Handoff(waiter, worker, *(int(time) for time in times))
            for times in zip(
                stop[taken], go_on[taken], theirs.starts[first[taken]], theirs.ends[last[taken]], strict=True
            )
        ]
    return found


def _unite_work(window: Window, track: int) -> Intervals:
    rows = (window.track == track) & ((window.kind == OPERATOR) | (window.kind == CALL))
    return unite(window.start_ns[rows], window.end_ns[rows])


_STREAM_WAIT = re.compile(r"StreamWaitEvent")
_RECORD = re.compile(r"EventRecord")


@dataclass(frozen=True)
class StreamWork:
    """The work of one stream in order of launch: the node of each piece, and the times of its launch, begin and end."""

    nodes: Ints
    launch_ns: Floats
    begin_ns: Floats
    end_ns: Floats

    def find_awaited(self, begin_ns: float, end_ns: float) -> int | None:
        """Return the node of this stream's work that a call with these times waited for; None without such work.

        A call waits for the last work that was launched before the call. If this work ended after the call, the call
        waited for the last work that ended during the call.
        """
        last = self.find_launched_before(begin_ns)
        if last < 0:
            return None
        if self.end_ns[last] <= end_ns + TOLERANCE_NS:
            return int(self.nodes[last])
        at = int(np.searchsorted(self.end_ns, end_ns + TOLERANCE_NS, side="right")) - 1
        return int(self.nodes[at]) if at >= 0 and self.end_ns[at] > begin_ns else None

    def find_launched_before(self, time_ns: float) -> int:
        """Return the index of the last work launched before a time, -1 for none."""
        return int(np.searchsorted(self.launch_ns, time_ns)) - 1


def list_streams(
    window: Window, work: Ints, nodes: Ints, launch: Ints, begin_ns: Floats, end_ns: Floats
) -> tuple[StreamWork, ...]:
    """Return the work of each stream. Launch and end times never decrease in a stream: a time before the previous one
    is raised to it.
    """
    order = np.argsort(nodes, kind="stable")
    found = []
    for track in np.unique(window.track[work]):
        mine = nodes[order][window.track[work][order] == track]
        launched = np.where(launch[mine] >= 0, begin_ns[launch[mine]], begin_ns[mine])
        ends = np.maximum.accumulate(end_ns[mine])
        found.append(StreamWork(mine, np.maximum.accumulate(launched), begin_ns[mine], ends))
    return tuple(found)


def find_stream_waits(window: Window, streams: tuple[StreamWork, ...]) -> Iterator[tuple[int, int, float]]:
    """Yield work that waits for work of another stream: its node, the awaited node, and the time in ns between both.

    A trace seldom names the event that a stream waits for. It is assumed to be the last event recorded before the wait,
    if the measured times allow this. Otherwise the awaited work is the work of another stream that ended just before.
    """
    if len(streams) < 2:
        return
    calls = window.kind == CALL
    waits = np.sort(window.start_ns[calls & window.match(_STREAM_WAIT)] - window.first_ns).astype(np.float64)
    records = np.sort(window.start_ns[calls & window.match(_RECORD)] - window.first_ns).astype(np.float64)
    for own in streams:
        others = [other for other in streams if other is not own]
        recorded = _find_recorded(own, waits, records)
        free = np.concatenate([[0.0], own.end_ns[:-1]])
        late = own.begin_ns - np.maximum(free, own.launch_ns) > NEAR_NS
        waited = np.isfinite(recorded)
        for at in np.flatnonzero(late | waited).tolist():
            found = _find_source(own, at, float(recorded[at]), others) if waited[at] else None
            if found is None and late[at]:
                found = _find_ended(float(own.begin_ns[at]), others, AT_ONCE_NS)
            if found is not None:
                yield (int(own.nodes[at]), *found)


def _find_recorded(own: StreamWork, waits: Floats, records: Floats) -> Floats:
    """Return for each piece of work the recording time of the event that it waits for; -inf without a wait before its
    launch.
    """
    found = np.full(len(own.nodes), -np.inf)
    if not len(waits) or not len(records):
        return found
    previous = np.concatenate([[-np.inf], own.launch_ns[:-1]])
    wait = np.searchsorted(waits, own.launch_ns) - 1
    waiting = (wait >= 0) & (waits[np.maximum(wait, 0)] > previous)
    record = np.searchsorted(records, waits[np.maximum(wait, 0)]) - 1
    return np.where(waiting & (record >= 0), records[np.maximum(record, 0)], found)


def _find_source(own: StreamWork, at: int, recorded_ns: float, others: list[StreamWork]) -> tuple[int, float] | None:
    begin = float(own.begin_ns[at])
    found: list[tuple[int, float]] = []
    for other in others:
        last = other.find_launched_before(recorded_ns)
        if last >= 0 and other.end_ns[last] <= begin + TOLERANCE_NS:
            found.append((int(other.nodes[last]), max(begin - float(other.end_ns[last]), 0.0)))
    near = _find_ended(begin, others, NEAR_NS)
    return min(found if near is None else [*found, near], key=_get_lag, default=None)


def _find_ended(begin_ns: float, others: list[StreamWork], within_ns: float) -> tuple[int, float] | None:
    """Return the node of the work in `others` that ended last before `begin_ns`, and the time in ns since this end.
    None if no work ended in the last `within_ns`.
    """
    found: list[tuple[int, float]] = []
    for other in others:
        last = int(np.searchsorted(other.end_ns, begin_ns + TOLERANCE_NS, side="right")) - 1
        if last >= 0 and begin_ns - other.end_ns[last] <= within_ns:
            found.append((int(other.nodes[last]), max(begin_ns - float(other.end_ns[last]), 0.0)))
    return min(found, key=_get_lag, default=None)


def _get_lag(found: tuple[int, float]) -> float:
    return found[1]
