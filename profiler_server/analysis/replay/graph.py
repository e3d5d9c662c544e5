"""The nodes and edges of a recorded window.

Nodes are the calls that launch or wait for device work, and the device work itself. Host time separates two calls of a
thread. A node begins when all its dependencies are met:

- the previous call of its thread has ended, and the host time between both calls has passed;
- the previous work of its stream has ended; if its stream waits for an event, the work of the event's stream has ended,
  too;
- its launch call has begun. A call that synchronises ends when the awaited work has ended;
- a thread may work only while another thread waits (the backward thread of autograd). Its work begins when the other
  thread stops, and the other thread goes on when this work ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from collector.format.intervals import Floats, Ints, Mask
from profiler_server.analysis.replay.window import Window

Edges = dict[int, list[tuple[int, float]]]


@dataclass(frozen=True)
class HostTime:
    """Ranges of host time, each with a node of its thread: the node around the range if `inside`, else the next node.
    `owner` is the row of the innermost slice.
    """

    start_ns: Ints
    length_ns: Ints
    owner: Ints
    node: Ints
    inside: Mask
    thread: Ints


NO_TIME = HostTime(*(np.empty(0, np.int64),) * 4, np.empty(0, np.bool_), np.empty(0, np.int64))


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each node follows all its dependencies. Times are ns since the start of the window.

    `row` is the slice of a node, -1 for a mark without length. `chain` is the previous node of its thread or stream;
    `gap_ns` is the least time from the end of that node. `launch` is the call that launched the node; `lag_ns` is the
    least time from the begin of this call. `after` maps a node to the nodes that must end before it begins, `awaits` to
    those that must end before it ends, each with the least time in ns. `begin_ns` and `end_ns` are as measured.
    """

    window: Window
    row: Ints
    track: Ints
    on_device: Mask
    chain: Ints
    gap_ns: Floats
    launch: Ints
    lag_ns: Floats
    length_ns: Floats
    begin_ns: Floats
    end_ns: Floats
    node_of_row: Ints
    after: Edges = field(default_factory=dict)
    awaits: Edges = field(default_factory=dict)
    host: HostTime = NO_TIME

    @property
    def measured_ns(self) -> float:
        return float(self.end_ns.max())

    def __len__(self) -> int:
        return len(self.row)


@dataclass
class Changes:
    """The changes of a replay: factors for each range of host time (`host`) and for the length of each node (`device`),
    and masks of nodes that change otherwise.
    """

    host: Floats
    device: Floats
    unwaited: Mask
    """Calls that no longer wait."""
    aside: Mask
    """Device work that runs beside all other work. Only work that needs its result waits for it."""
    skipped: Mask
    """Device work that is removed, with its length and the gap before it."""
    joined: Mask
    """Device work that is merged into the work before it, without a gap."""

    @classmethod
    def none(cls, graph: Graph) -> Changes:
        count = len(graph)
        flags = [np.zeros(count, bool) for _ in range(4)]
        return cls(np.ones(len(graph.host.owner)), np.ones(count), *flags)


def replay(graph: Graph, changes: Changes | None = None) -> tuple[list[float], list[float]]:
    """Return begin and end of each node in ns since the window's start. With `changes` None, nothing is changed."""
    changes = Changes.none(graph) if changes is None else changes
    begins, ends = [0.0] * len(graph), [0.0] * len(graph)
    gaps, lengths = _weigh(graph, changes)
    chains, launches, lags = graph.chain.tolist(), graph.launch.tolist(), graph.lag_ns.tolist()
    unwaited, aside = (set(np.flatnonzero(flags).tolist()) for flags in (changes.unwaited, changes.aside))
    after, awaits = graph.after, graph.awaits
    for node, (chain, gap, launch, length) in enumerate(zip(chains, gaps, launches, lengths, strict=True)):
        begin = ends[chain] + gap if chain >= 0 else gap
        if launch >= 0:
            ready = begins[launch] + lags[node]
            if ready > begin or node in aside:
                begin = ready
        if node in after:
            for source, lag in after[node]:
                if ends[source] + lag > begin:
                    begin = ends[source] + lag
        end = begin + length
        if node in awaits and node not in unwaited:
            for source, lag in awaits[node]:
                if ends[source] + lag > end:
                    end = ends[source] + lag
        begins[node] = begin
        # What runs aside takes no place on its stream: the next one follows what was before it.
        ends[node] = end if node not in aside else (ends[chain] if chain >= 0 else 0.0)
    return begins, ends


def _weigh(graph: Graph, changes: Changes) -> tuple[list[float], list[float]]:
    """Return two times in ns for each node after the changes: the host time or gap before the node, and its length."""
    host, count = graph.host, len(graph)
    saved = host.length_ns * (1.0 - changes.host)
    before = np.bincount(host.node[~host.inside], saved[~host.inside], count)
    within = np.bincount(host.node[host.inside], saved[host.inside], count)
    gaps, lengths = graph.gap_ns.copy(), graph.length_ns.copy()
    on_host = ~graph.on_device
    gaps[on_host] = np.maximum(gaps - before, 0.0)[on_host]
    lengths[on_host] = np.maximum(lengths - within, 0.0)[on_host]
    lengths[graph.on_device] *= changes.device[graph.on_device]
    lengths[changes.skipped & graph.on_device] = 0.0
    gaps[(changes.skipped | changes.joined) & graph.on_device & (graph.chain >= 0)] = 0.0
    return gaps.tolist(), lengths.tolist()


def bound_savings(graph: Graph, changes: Changes) -> float:
    """Return an upper bound in ns of what the changes save: the sum of all removed time, as if it were all on the
    critical path.
    """
    host = float((graph.host.length_ns * (1.0 - changes.host)).sum())
    touched = graph.on_device & (changes.skipped | changes.joined | changes.aside)
    work = float((graph.length_ns * (1.0 - changes.device))[graph.on_device].sum())
    beside = float((graph.length_ns + np.maximum(graph.gap_ns, 0.0))[touched].sum())
    waits = float((graph.end_ns - graph.begin_ns)[changes.unwaited].sum())
    return host + work + beside + waits


def measure_replay(graph: Graph, changes: Changes | None = None) -> float:
    """Return the time in ns from the start of the window to the last end of a node."""
    return max(replay(graph, changes)[1])
