"""The critical path of a window: the cause of each moment of its steps, followed backwards from the end.

Work is on the path if later work would have begun earlier had this work ended earlier. The pieces of the path are
contiguous, so their times sum to the time of the steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Intervals, Ints, Mask, unite
from collector.format.run import RankRun
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.graph import Graph
from profiler_server.analysis.replay.window import CALL, COLLECTIVE, COPY, KERNEL, OPERATOR, SET, Window, read_window
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.replay import LATE_RETURN_NS, UNKNOWN_NS
from profiler_server.facts.machine import HostWaits

KINDS = ("compute", "communication", "copy", "launch", "sync", "operator", "python", "loading", "unknown")
"""Kinds of pieces. `launch` covers launch calls, and the delay from a call to the device and between kernels."""
ON_HOST = ("operator", "python", "loading")
"""Kinds of pieces in which the device waits for work of the host."""
_ON_DEVICE = {KERNEL: "compute", COLLECTIVE: "communication", COPY: "copy", SET: "compute"}
_LOADING = re.compile(r"DataLoader")
_MOST_EXAMPLES = 3


@dataclass(frozen=True)
class CriticalPath:
    """The pieces of the path in time order, with times since the run's epoch. `kind` is an index in `KINDS`;
    `slice_id`, `track` and `depth` are those of a piece's slice, -1 without a slice.

    `steps` is the number of steps on the path, `left_out` the number of the window's steps before it. `examples` are
    the names with the most time of each kind. `waiting_ns` is the time over all steps in which the host is on the path
    and the device has no work, and `waits_ns` that of the names with the most of it.
    """

    steps: int
    left_out: int
    step_starts_ns: Ints
    step_ends_ns: Ints
    examples: Mapping[str, tuple[str, ...]]
    waiting_ns: int
    waits_ns: Mapping[str, int]
    start_ns: Ints
    end_ns: Ints
    kind: Ints
    slice_id: Ints
    track: Ints
    depth: Ints

    def sum_kinds(self) -> dict[str, int]:
        """Return the time of each kind inside of the steps. The times sum to the time of the steps."""
        steps = Intervals(self.step_starts_ns, self.step_ends_ns)
        lengths = steps.measure_before(self.end_ns) - steps.measure_before(self.start_ns)
        return {name: int(lengths[self.kind == number].sum()) for number, name in enumerate(KINDS)}

    @property
    def host_waits(self) -> HostWaits:
        sums = self.sum_kinds()
        names = tuple((name, spent_ns / self.steps) for name, spent_ns in self.waits_ns.items())
        return HostWaits(self.waiting_ns / self.steps, sum(sums.values()) / self.steps, names)


@dataclass(frozen=True)
class _Piece:
    start: float
    end: float
    kind: str
    row: int = -1


@derived(file="critical-path")
def find_critical_path(rank: RankRun) -> CriticalPath | None:
    """Return the critical path of the last window. None without a window, or if no launch is linked to its work."""
    window = read_window(rank)
    graph = build_graph(window) if window is not None else None
    return None if window is None or graph is None else trace_path(graph)


def trace_path(graph: Graph) -> CriticalPath:
    window = graph.window
    pieces = _Walk(graph).run()
    pieces.reverse()
    first, last = window.first_ns, int(window.step_ends_ns[-1])
    starts = np.minimum(np.round([piece.start for piece in pieces]).astype(np.int64) + first, last)
    ends = np.append(starts[1:], last)  # the ends meet the next starts, also if the path ends before the last step
    kept = ends > starts
    rows = np.array([piece.row for piece in pieces], np.int64)[kept]
    known, lengths = rows >= 0, ends[kept] - starts[kept]
    kinds = np.array([KINDS.index(piece.kind) for piece in pieces], np.int64)[kept]
    busy = unite(window.start_ns[window.on_device], window.end_ns[window.on_device])
    idle = Intervals(window.step_starts_ns, window.step_ends_ns) - busy
    waits = idle.measure_before(ends[kept]) - idle.measure_before(starts[kept])
    on_host = np.isin(kinds, [KINDS.index(kind) for kind in ON_HOST])
    return CriticalPath(
        steps=window.steps,
        left_out=window.left_out,
        step_starts_ns=window.step_starts_ns,
        step_ends_ns=window.step_ends_ns,
        examples={kind: tuple(_sum_names(window, rows, lengths, kinds == at)) for at, kind in enumerate(KINDS)},
        waiting_ns=int(waits[on_host].sum()),
        waits_ns=_sum_names(window, rows, waits, on_host),
        start_ns=starts[kept],
        end_ns=ends[kept],
        kind=kinds,
        slice_id=np.where(known, window.ids[rows], -1),
        track=np.where(known, window.track[rows], -1),
        depth=np.where(known, window.depth[rows], -1),
    )


def _sum_names(window: Window, rows: Ints, lengths: Ints, chosen: Mask) -> dict[str, int]:
    """Return the names with the most time in the chosen pieces, each with its time in ns."""
    mine = chosen & (rows >= 0)
    names, place = np.unique(window.name[rows[mine]], return_inverse=True)
    spent = np.bincount(place, lengths[mine], len(names))
    return {window.names[int(names[at])][:100]: int(spent[at]) for at in np.argsort(-spent)[:_MOST_EXAMPLES]}


class _Walk:
    """A walk along the critical path, backwards from the last end of the graph. `pieces` are in reverse time order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.window: Window = graph.window
        self.loading = self.window.match(_LOADING)
        self.pieces: list[_Piece] = []
        host = graph.host
        self.threads = [np.flatnonzero(host.thread == number) for number in range(len(self.window.threads))]
        self.starts = [host.start_ns[rows] - self.window.first_ns for rows in self.threads]
        self.number = {track: number for number, track in enumerate(self.window.threads)}

    def run(self) -> list[_Piece]:
        node, time, began = int(np.argmax(self.graph.end_ns)), self.graph.measured_ns, False
        while node >= 0 and time > 0:
            if not began:
                node, time, began = self._leave(node, time)
                if not began:
                    continue
            node, time, began = self._go_back(node, time)
        if time > 0:
            self._add(0.0, time, "unknown")
        return self.pieces

    def _leave(self, node: int, time: float) -> tuple[int, float, bool]:
        """Go back from a time within a node: to work that the node waited for, else to the begin of the node.

        Return the node reached, the time reached, and whether this time is the begin of that node.
        """
        graph, begin = self.graph, float(self.graph.begin_ns[node])
        row = int(graph.row[node])
        awaited = graph.awaits.get(node, ())
        done = max(((float(graph.end_ns[source]), source) for source, _ in awaited), default=(-1.0, -1))
        if done[0] > begin:
            kind = "sync" if time - done[0] <= LATE_RETURN_NS else "unknown"
            self._add(min(done[0], time), time, kind, row)
            return done[1], min(done[0], time), False
        if graph.on_device[node]:
            self._add(begin, time, _ON_DEVICE[int(self.window.kind[row])], row)
        elif row >= 0:
            self._add(begin, time, "launch", row)
        return node, min(begin, time), True

    def _go_back(self, node: int, time: float) -> tuple[int, float, bool]:
        """Go back from a node's begin to the dependency that was met last.

        Return the node of this dependency, the time reached, and whether this time is the begin of that node.
        """
        graph = self.graph
        chain, launch = int(graph.chain[node]), int(graph.launch[node])
        found: list[tuple[float, float, int, bool]] = []
        if chain >= 0:
            found.append((float(graph.end_ns[chain] + graph.gap_ns[node]), float(graph.end_ns[chain]), chain, False))
        if launch >= 0:
            found.append(
                (float(graph.begin_ns[launch] + graph.lag_ns[node]), float(graph.begin_ns[launch]), launch, True)
            )
        for source, lag in graph.after.get(node, ()):
            found.append((float(graph.end_ns[source]) + lag, float(graph.end_ns[source]), source, False))
        if not found:
            self._fill_host(node, 0.0, time)
            return -1, 0.0, False
        ready, left, source, began = max(found)
        left = min(left, time)
        if graph.on_device[node]:
            late = time - ready > UNKNOWN_NS
            if late:
                self._add(max(ready, left), time, "unknown")
            self._add(left, min(max(ready, left), time) if late else time, "launch", int(graph.row[node]))
        else:
            self._fill_host(node, left, time)
        return source, left, began

    def _fill_host(self, node: int, begin: float, end: float) -> None:
        """Add the host time from `begin` to `end` before a node to the path, divided by what the node's thread did."""
        graph = self.graph
        number = self.number.get(int(graph.track[node]), -1)
        if number < 0 or end <= begin:
            self._add(begin, end, "unknown")
            return
        starts, rows = self.starts[number], self.threads[number]
        low = max(int(np.searchsorted(starts, begin, side="right")) - 1, 0)
        high = int(np.searchsorted(starts, end, side="left"))
        reached = end
        for at in range(high - 1, low - 1, -1):
            start = max(float(starts[at]), begin)
            owner = int(graph.host.owner[rows[at]])
            if reached > start:
                self._add(start, reached, self._name_kind(owner), owner)
                reached = start
        self._add(begin, reached, "python")

    def _name_kind(self, owner: int) -> str:
        if owner < 0:
            return "python"
        if self.loading[owner]:
            return "loading"
        return {OPERATOR: "operator", CALL: "launch"}.get(int(self.window.kind[owner]), "python")

    def _add(self, start: float, end: float, kind: str, row: int = -1) -> None:
        if end > start:
            self.pieces.append(_Piece(max(start, 0.0), end, kind, row))
