"""Building of the graph of a window: its nodes are numbered, then each node's dependencies and the host time before
it are found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.device.slices import count_levels
from profiler_server.analysis.replay.graph import Graph, HostTime
from profiler_server.analysis.replay.waiting import (
    MARK,
    WAIT,
    Handoff,
    Points,
    StreamWork,
    find_handoffs,
    find_stream_waits,
    list_points,
    list_streams,
)
from profiler_server.analysis.replay.window import SET, Window
from profiler_server.diagnosis.limits.replay import CALL_RETURN_NS, GAP_NS, LAG_NS, MOST_LAG_NS, USUAL_PERCENT


@dataclass(frozen=True)
class Segments:
    """Time ranges of one thread, in order. `owner` is the row of the innermost slice around a range, -1 for none."""

    start_ns: Ints
    end_ns: Ints
    owner: Ints


def split_thread(window: Window, track: int, end_ns: int) -> Segments:
    """Return the time of the thread `track`, split at the edges of its slices, from the start of the window to
    `end_ns`.

    A slice owns the time from its start. After its end, the enclosing slice owns the time again.
    """
    rows = np.flatnonzero((window.track == track) & (window.kind > SET) & (window.end_ns > window.start_ns))
    starts, ends = window.start_ns[rows], np.minimum(window.end_ns[rows], end_ns)
    depth = count_levels(window.parent, rows)
    times = np.concatenate([[window.first_ns], ends, starts])
    owner = np.concatenate([[-1], window.parent[rows], rows])
    is_start = np.repeat([0, 0, 1], [1, len(rows), len(rows)])
    # At one moment the inner slices end first, and the outer ones begin first.
    order = np.lexsort((np.concatenate([[0], -depth, depth]), is_start, times))
    times, owner = times[order], owner[order]
    until = np.append(times[1:], end_ns)
    kept = until > times
    return Segments(times[kept], until[kept], owner[kept])


_NESTED_CALLS = 4


@dataclass(frozen=True)
class _Draft:
    """A graph whose arrays are filled in, with the nodes of its points and of its device work (`work`, rows)."""

    graph: Graph
    points: Points
    work: Ints
    point_nodes: Ints
    work_nodes: Ints

    def pick_nodes(self, track: int) -> Ints:
        nodes: Ints = self.point_nodes[self.points.track == track]
        return nodes


def build_graph(window: Window) -> Graph | None:
    """Return the graph of a window; None if no thread of the window launches device work."""
    if not window.threads:
        return None
    handoffs = find_handoffs(window)
    draft = _number_nodes(window, list_points(window, handoffs))
    graph = draft.graph
    for track in window.threads:
        _chain_thread(draft, track)
    _link_launches(draft)
    _chain_streams(draft)
    for turn in handoffs:
        _hand_over(draft, turn)
    streams = list_streams(window, draft.work, draft.work_nodes, graph.launch, graph.begin_ns, graph.end_ns)
    _await_work(draft, streams)
    for node, source, lag_ns in find_stream_waits(window, streams):
        if source < node:
            graph.after.setdefault(node, []).append((source, min(lag_ns, MOST_LAG_NS)))
    return replace(graph, host=_lay_host_time(draft))


def _number_nodes(window: Window, points: Points) -> _Draft:
    """Number the nodes so that each node comes after all its dependencies, according to the measured times."""
    work = np.flatnonzero(window.on_device)
    launched = window.launch[work]
    ready = np.where(launched >= 0, window.start_ns[launched], window.start_ns[work])
    key = np.concatenate([_order_points(points), np.maximum(window.start_ns[work], ready)])
    count = len(key)
    # Points at the same moment keep the order of their thread, and calls come before device work.
    order = np.lexsort((np.arange(count), key))
    number = np.empty(count, np.int64)
    number[order] = np.arange(count)
    begin = (np.concatenate([points.begin_ns, window.start_ns[work]]) - window.first_ns)[order].astype(np.float64)
    end = (np.concatenate([points.end_ns, window.end_ns[work]]) - window.first_ns)[order].astype(np.float64)
    graph = Graph(
        window=window,
        row=np.concatenate([points.row, work])[order],
        track=np.concatenate([points.track, window.track[work]])[order],
        on_device=order >= len(points),
        chain=np.full(count, -1, np.int64),
        gap_ns=np.zeros(count),
        launch=np.full(count, -1, np.int64),
        lag_ns=np.zeros(count),
        length_ns=end - begin,
        begin_ns=begin,
        end_ns=end,
        node_of_row=np.full(len(window.ids), -1, np.int64),
    )
    return _Draft(graph, points, work, number[: len(points)], number[len(points) :])


def _order_points(points: Points) -> Ints:
    """Return the time at which each point is passed. A wait is passed at its end.

    The time is never before that of the previous point of the thread.
    """
    passed = np.where(points.kind >= WAIT, points.end_ns, points.begin_ns)
    for track in np.unique(points.track):
        mine = points.track == track
        passed[mine] = np.maximum.accumulate(passed[mine])
    return passed


def _chain_thread(draft: _Draft, track: int) -> None:
    nodes, graph = draft.pick_nodes(track), draft.graph
    graph.chain[nodes[1:]] = nodes[:-1]
    graph.gap_ns[nodes[0]] = graph.begin_ns[nodes[0]]
    graph.gap_ns[nodes[1:]] = np.maximum(graph.begin_ns[nodes[1:]] - graph.end_ns[nodes[:-1]], 0.0)


def _link_launches(draft: _Draft) -> None:
    """Link device work to its launch, and note the node of each slice. A call nested in another call has the node of
    the outer call.
    """
    graph, points = draft.graph, draft.points
    window, node_of_row = graph.window, graph.node_of_row
    calls = np.flatnonzero(points.kind != MARK)
    calls = calls[np.argsort(-points.kind[calls], kind="stable")]  # of a launch that also waits, the launch is kept
    node_of_row[points.row[calls]] = draft.point_nodes[calls]
    launched = window.launch[draft.work]
    for _ in range(_NESTED_CALLS):
        lost = (launched >= 0) & (node_of_row[launched] < 0)
        launched = np.where(lost, window.parent[launched], launched)
    nodes = np.where(launched >= 0, node_of_row[launched], -1)
    graph.launch[draft.work_nodes] = np.where(nodes < draft.work_nodes, nodes, -1)
    node_of_row[draft.work] = draft.work_nodes


def _chain_streams(draft: _Draft) -> None:
    """Link the work of each stream in order, and set the usual delays after the previous work and after the launch.

    A longer delay has a cause outside of the graph. The replay leaves such delays out, so it can be shorter than the
    window.
    """
    graph = draft.graph
    nodes = np.sort(draft.work_nodes)
    tracks = graph.track[nodes]
    for track in np.unique(tracks):
        mine = nodes[tracks == track]
        graph.chain[mine[1:]] = mine[:-1]
    chain, launch, begin = graph.chain[nodes], graph.launch[nodes], graph.begin_ns[nodes]
    first, linked = chain < 0, launch >= 0
    since_work = np.where(first, begin, begin - graph.end_ns[chain])
    since_launch = np.where(linked, begin - graph.begin_ns[launch], 0.0)
    idle = linked & (first | (graph.end_ns[chain] <= graph.begin_ns[launch]))
    queued = linked & ~first & (since_work >= 0) & (since_launch > since_work + MOST_LAG_NS)
    graph.lag_ns[nodes] = np.clip(since_launch, 0.0, _find_usual(since_launch[idle], LAG_NS))
    gap = np.where(first, 0.0, np.minimum(since_work, _find_usual(since_work[queued], GAP_NS)))
    # Work without a launch keeps its distance from the work before it.
    graph.gap_ns[nodes] = np.where(linked, gap, since_work)


def _find_usual(times_ns: Floats, default_ns: float) -> float:
    return min(float(np.percentile(times_ns, USUAL_PERCENT)), MOST_LAG_NS) if len(times_ns) else default_ns


def _hand_over(draft: _Draft, turn: Handoff) -> None:
    stop, begin, end, go_on = (
        _find_mark(draft, track, time_ns)
        for track, time_ns in (
            (turn.waiter, turn.stop_ns),
            (turn.worker, turn.begin_ns),
            (turn.worker, turn.end_ns),
            (turn.waiter, turn.go_on_ns),
        )
    )
    if stop < begin <= end < go_on:
        graph = draft.graph
        graph.gap_ns[begin] = graph.gap_ns[go_on] = 0.0
        for node, source in ((begin, stop), (go_on, end)):
            lag_ns = float(graph.begin_ns[node] - graph.begin_ns[source])
            graph.after.setdefault(node, []).append((source, lag_ns))


def _find_mark(draft: _Draft, track: int, time_ns: int) -> int:
    nodes, graph = draft.pick_nodes(track), draft.graph
    at = int(np.searchsorted(graph.begin_ns[nodes], time_ns - graph.window.first_ns))
    while graph.row[nodes[at]] >= 0:  # skip calls that begin at the same moment
        at += 1
    return int(nodes[at])


def _await_work(draft: _Draft, streams: tuple[StreamWork, ...]) -> None:
    """Link each call that waits to the work that the call waits for: in each stream, the last work that was launched
    before the call.
    """
    points, graph = draft.points, draft.graph
    launched_by: dict[int, int] = dict(
        zip(graph.window.launch[draft.work].tolist(), draft.work_nodes.tolist(), strict=True)
    )
    for at in np.flatnonzero(points.kind >= WAIT).tolist():
        node, row = int(draft.point_nodes[at]), int(points.row[at])
        own = launched_by.get(row) if points.kind[at] == WAIT else None
        begin, end = float(graph.begin_ns[node]), float(graph.end_ns[node])
        awaited = [own] if own is not None else [s.find_awaited(begin, end) for s in streams]
        known = [other for other in awaited if other is not None and other < node]
        if not known:
            continue
        done = max(float(graph.end_ns[other]) for other in known)
        waited = done > begin
        lag = min(max(end - done, 0.0), end - begin) if waited else 0.0
        graph.awaits[node] = [(other, lag) for other in known]
        if waited:
            graph.length_ns[node] = min(graph.length_ns[node], CALL_RETURN_NS)


def _lay_host_time(draft: _Draft) -> HostTime:
    """Return the ranges of host time, each with the node around the range; a range in no node has the next node."""
    graph, window = draft.graph, draft.graph.window
    parts: list[tuple[Ints, ...]] = []
    for number, track in enumerate(window.threads):
        nodes = draft.pick_nodes(track)
        begins = graph.begin_ns[nodes].astype(np.int64) + window.first_ns
        ends = graph.end_ns[nodes].astype(np.int64) + window.first_ns
        found = split_thread(window, track, int(ends[-1]))
        last = np.searchsorted(begins, found.start_ns, side="right") - 1
        inside = (last >= 0) & (found.start_ns < ends[last])
        at = np.where(inside, last, np.minimum(last + 1, len(nodes) - 1))
        length = found.end_ns - found.start_ns
        parts.append(
            (found.start_ns, length, found.owner, nodes[at], inside.astype(np.int64), np.full(len(at), number))
        )
    start, length, owner, node, within, thread = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return HostTime(start, length, owner, node, within.astype(bool), thread)
