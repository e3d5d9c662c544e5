"""What waits for work on a stream: calls that synchronise, and work on other streams behind an event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.replay.window import CALL, Window
from profiler_server.diagnosis.limits.replay import AT_ONCE_NS, NEAR_NS, TOLERANCE_NS

_STREAM_WAIT = re.compile(r"StreamWaitEvent")
_RECORD = re.compile(r"EventRecord")


@dataclass(frozen=True)
class Streams:
    """The work of one stream in order: its nodes, and when each was launched, began and ended."""

    nodes: Ints
    launch_ns: Floats
    begin_ns: Floats
    end_ns: Floats

    def find_awaited(self, begin_ns: float, end_ns: float) -> int | None:
        """Return the work of this stream that a call with these times waited for, None where it cannot have done so.

        The last that was launched before the call; if that ended later, the last that ended during the call.
        """
        last = int(np.searchsorted(self.launch_ns, begin_ns)) - 1
        if last < 0:
            return None
        if self.end_ns[last] <= end_ns + TOLERANCE_NS:
            return int(self.nodes[last])
        at = int(np.searchsorted(self.end_ns, end_ns + TOLERANCE_NS, side="right")) - 1
        return int(self.nodes[at]) if at >= 0 and self.end_ns[at] > begin_ns else None

    def find_launched_before(self, time_ns: float) -> int:
        """Return the place of the last work that was launched before a time, -1 for none."""
        return int(np.searchsorted(self.launch_ns, time_ns)) - 1


def list_streams(
    window: Window, work: Ints, nodes: Ints, launch: Ints, begin_ns: Floats, end_ns: Floats
) -> tuple[Streams, ...]:
    """Split the work by stream. A launch cannot be before that of the work in front of it."""
    order = np.argsort(nodes, kind="stable")
    found = []
    for track in np.unique(window.track[work]):
        mine = nodes[order][window.track[work][order] == track]
        launched = np.where(launch[mine] >= 0, begin_ns[launch[mine]], begin_ns[mine])
        ends = np.maximum.accumulate(end_ns[mine])
        found.append(Streams(mine, np.maximum.accumulate(launched), begin_ns[mine], ends))
    return tuple(found)


def find_stream_waits(window: Window, streams: tuple[Streams, ...]) -> Iterator[tuple[int, int, float]]:
    """Yield work that waits for work of another stream: its node, the one that it waits for, and the time between.

    A trace seldom says which event a stream waits for: it is taken to be the one that was recorded last before the wait,
    if the measured times allow that, else the work of the other stream that ended right before.
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
        for at in np.flatnonzero(late | (recorded > -np.inf)).tolist():
            found = _find_source(own, at, float(recorded[at]), others) if recorded[at] > -np.inf else None
            if found is None and late[at]:
                found = _find_ended(float(own.begin_ns[at]), others, AT_ONCE_NS)
            if found is not None:
                yield (int(own.nodes[at]), *found)


def _find_recorded(own: Streams, waits: Floats, records: Floats) -> Floats:
    """Return when the event was recorded that each work waits for; -inf where no wait stands before its launch."""
    found = np.full(len(own.nodes), -np.inf)
    if not len(waits) or not len(records):
        return found
    previous = np.concatenate([[-np.inf], own.launch_ns[:-1]])
    wait = np.searchsorted(waits, own.launch_ns) - 1
    waiting = (wait >= 0) & (waits[np.maximum(wait, 0)] > previous)
    record = np.searchsorted(records, waits[np.maximum(wait, 0)]) - 1
    return np.where(waiting & (record >= 0), records[np.maximum(record, 0)], found)


def _find_source(own: Streams, at: int, recorded_ns: float, others: list[Streams]) -> tuple[int, float] | None:
    begin = float(own.begin_ns[at])
    best: tuple[int, float] | None = None
    for other in others:
        last = other.find_launched_before(recorded_ns)
        if last >= 0 and other.end_ns[last] <= begin + TOLERANCE_NS:
            lag = max(begin - float(other.end_ns[last]), 0.0)
            best = min(best, (int(other.nodes[last]), lag), key=_get_lag) if best else (int(other.nodes[last]), lag)
    near = _find_ended(begin, others, NEAR_NS)
    return near if best is None or (near is not None and near[1] < best[1]) else best


def _find_ended(begin_ns: float, others: list[Streams], within_ns: float) -> tuple[int, float] | None:
    """Return the work that ended last before a time, if that was shortly before it."""
    found: list[tuple[int, float]] = []
    for other in others:
        last = int(np.searchsorted(other.end_ns, begin_ns + TOLERANCE_NS, side="right")) - 1
        if last >= 0 and begin_ns - other.end_ns[last] <= within_ns:
            found.append((int(other.nodes[last]), max(begin_ns - float(other.end_ns[last]), 0.0)))
    return min(found, key=_get_lag, default=None)


def _get_lag(found: tuple[int, float]) -> float:
    return found[1]
