"""What waits for work on a stream: calls that synchronise, and work on other streams behind an event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.replay.points import TOLERANCE_NS
from profiler_server.analysis.replay.window import CALL, Window

_STREAM_WAIT = re.compile(r"StreamWaitEvent")
_RECORD = re.compile(r"EventRecord")
_NEAR_NS = 30_000.0
"""Work that begins so soon after the end of other work may have waited for it."""


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
    """Yield work that waits for an event of another stream: its node, the one that it waits for, and the time between.

    A trace seldom says which event is meant: it is taken to be the one that was recorded last before the wait, if the
    measured times allow that, else the work of the other stream that ended right before.
    """
    calls = window.kind == CALL
    waits = np.sort(window.start_ns[calls & window.match(_STREAM_WAIT)] - window.first_ns).astype(np.float64)
    records = np.sort(window.start_ns[calls & window.match(_RECORD)] - window.first_ns).astype(np.float64)
    if len(streams) < 2 or not len(waits):
        return
    for own in streams:
        previous = np.concatenate([[-np.inf], own.launch_ns[:-1]])
        wait = np.searchsorted(waits, own.launch_ns) - 1
        waiting = (wait >= 0) & (waits[np.maximum(wait, 0)] > previous)
        for at in np.flatnonzero(waiting).tolist():
            record = int(np.searchsorted(records, waits[wait[at]])) - 1
            recorded = float(records[record]) if record >= 0 else -np.inf
            found = _find_source(own, at, recorded, [other for other in streams if other is not own])
            if found is not None:
                yield (int(own.nodes[at]), *found)


def _find_source(own: Streams, at: int, recorded_ns: float, others: list[Streams]) -> tuple[int, float] | None:
    begin = float(own.begin_ns[at])
    best: tuple[int, float] | None = None
    for other in others:
        last = other.find_launched_before(recorded_ns)
        if last < 0 or other.end_ns[last] > begin + TOLERANCE_NS:
            last = int(np.searchsorted(other.end_ns, begin + TOLERANCE_NS, side="right")) - 1
            if last < 0 or begin - other.end_ns[last] > _NEAR_NS:
                continue
        lag = max(begin - float(other.end_ns[last]), 0.0)
        if best is None or lag < best[1]:
            best = int(other.nodes[last]), lag
    return best
