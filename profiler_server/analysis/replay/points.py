"""The points of a thread that become nodes: calls that launch or wait for work, and where threads take turns."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Intervals, Ints, Mask, unite
from profiler_server.analysis.replay.window import CALL, OPERATOR, Window
from profiler_server.diagnosis.limits.replay import FULL_QUEUE, LAST_FRAC, LONG_LAUNCH_NS, LONG_TURN_NS, TOLERANCE_NS

SYNC = re.compile(r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|^(cuda|hip)(Free|Memcpy|Memcpy2D)$")
"""Calls that return when work on the device has ended."""
MARK, LAUNCH, WAIT, QUEUE = -1, 0, 1, 2
"""What a point is: a mark, a launch, a wait for work, or a wait for a place in the queue of launches."""
_COPY = re.compile("Memcpy")


@dataclass(frozen=True)
class Points:
    """Points of the threads, each thread in order: the slice (-1 for a mark), what it is, and when."""

    track: Ints
    row: Ints
    kind: Ints
    begin_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Handoff:
    """A thread that works only while another one does nothing: when that stops and goes on, and when this one works."""

    waiter: int
    worker: int
    stop_ns: int
    go_on_ns: int
    begin_ns: int
    end_ns: int


def list_points(window: Window, handoffs: list[Handoff]) -> Points:
    """Return the points of all threads that launch work."""
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
    # A call that waits for the copy that it launches is two points: the launch, and the wait. One that waits for a place
    # in the queue waits first.
    row = np.concatenate([rows, rows[blocks], rows[queues], np.full(len(marks), -1)])
    own = np.where(waiting[rows] & ~blocks, WAIT, LAUNCH)
    more = [np.full(count, kind) for count, kind in ((blocks.sum(), WAIT), (queues.sum(), QUEUE), (len(marks), MARK))]
    kind = np.concatenate([own, *more])
    begins = np.concatenate([np.where(queues, end, begin), begin[blocks], begin[queues], marks])
    ends = np.concatenate([np.where(blocks, begin, end), end[blocks], end[queues], marks])
    order = np.lexsort((ends, begins))
    return Points(np.full(len(row), track), row[order], kind[order], begins[order], ends[order])


def _find_outermost(window: Window, rows: Ints) -> Mask:
    """Return which calls do not lie in another one: a runtime call may stand around one of the driver."""
    if not len(rows):
        return np.zeros(0, bool)
    reach = np.maximum.accumulate(window.end_ns[rows])
    outer: Mask = np.concatenate([[True], window.start_ns[rows][1:] >= reach[:-1]])
    return outer


def _find_blocking(window: Window, rows: Ints) -> Mask:
    """Return which calls return only when the copy that they launched is done."""
    done = np.full(len(window.ids), np.iinfo(np.int64).max)
    copies = np.flatnonzero(window.on_device & (window.launch >= 0))
    done[window.launch[copies]] = window.end_ns[copies]
    blocking: Mask = (done[rows] <= window.end_ns[rows] + TOLERANCE_NS) & window.match(_COPY)[rows]
    return blocking


def _find_queued(window: Window, rows: Ints) -> Mask:
    """Return which calls take long while hundreds of launches wait to run: the queue of launches was full."""
    work = np.flatnonzero(window.on_device & (window.launch >= 0))
    launched = np.sort(window.start_ns[window.launch[work]])
    done = np.sort(window.end_ns[work])
    ends = window.end_ns[rows]
    waiting = np.searchsorted(launched, ends, side="right") - np.searchsorted(done, ends, side="right")
    queued: Mask = (ends - window.start_ns[rows] >= LONG_LAUNCH_NS) & (waiting >= FULL_QUEUE)
    return queued


def _list_marks(window: Window, track: int, handoffs: list[Handoff]) -> Ints:
    """Return when a thread takes turns with another one, and when it ends."""
    times = {time for turn in handoffs if turn.waiter == track for time in (turn.stop_ns, turn.go_on_ns)}
    times |= {time for turn in handoffs if turn.worker == track for time in (turn.begin_ns, turn.end_ns)}
    last, over = int(window.end_ns[window.track == track].max()), int(window.step_ends_ns[-1])
    return np.array(sorted(times | {min(last, over)}), np.int64)


def find_handoffs(window: Window) -> list[Handoff]:
    """Find where the first thread does nothing while another one does work that begins in that time.

    That ends in it too, or, in a long wait, goes on for some last steps after the first thread was let go.
    """
    waiter, *workers = window.threads
    busy = _unite_work(window, waiter)
    found: list[Handoff] = []
    for worker in workers:
        theirs = _unite_work(window, worker)
        first = np.searchsorted(theirs.starts, busy.ends[:-1])
        last = np.searchsorted(theirs.ends, busy.starts[1:], side="right") - 1
        before = np.append(theirs.ends, 0)[first - 1]  # where nothing is before, it ended at 0
        after = np.append(theirs.starts, np.iinfo(np.int64).max)[last + 1]
        stop, go_on = busy.ends[:-1], busy.starts[1:]
        lag = go_on - theirs.ends[np.maximum(last, 0)]
        alone = (after >= go_on) | ((go_on - stop >= LONG_TURN_NS) & (lag <= LAST_FRAC * (go_on - stop)))
        taken = (last >= first) & ((first == 0) | (before <= stop)) & alone
        found += [
            Handoff(waiter, worker, *(int(time) for time in times))
            for times in zip(
                busy.ends[:-1][taken],
                busy.starts[1:][taken],
                theirs.starts[first[taken]],
                theirs.ends[last[taken]],
                strict=True,
            )
        ]
    return found


def _unite_work(window: Window, track: int) -> Intervals:
    rows = (window.track == track) & ((window.kind == OPERATOR) | (window.kind == CALL))
    return unite(window.start_ns[rows], window.end_ns[rows])
