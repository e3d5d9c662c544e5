"""Replay the operations of a job with other lengths: each begins when all that it waits for has ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats
from profiler_server.analysis.what_if.job import UPDATE, Job
from profiler_server.analysis.what_if.schedule import Schedule, ScheduleError


@dataclass(frozen=True)
class _Node:
    """Operations that end together. `meets` says that all replicas do; a single one that is no transfer just runs."""

    rows: tuple[int, ...]
    meets: bool
    waits: bool


class Replay:
    """Made once for a schedule. Lengths are (operations, steps, replicas) in ns: of a transfer, from the last arrival."""

    def __init__(self, job: Job, schedule: Schedule) -> None:
        """ScheduleError if operations wait for each other in a circle."""
        self._after = schedule.after
        self._updates = [row for row, operation in enumerate(job.operations) if operation.kind == UPDATE]
        self._order = _order(schedule)
        if not self._updates:
            raise ScheduleError("no step ends with an optimizer")

    def run(self, lengths_ns: Floats) -> Floats:
        """Return the length of each step in ns: until the last stage of the last replica has updated."""
        ends = np.zeros_like(lengths_ns)
        for node in self._order:
            arrivals = [self._start(row, ends) for row in node.rows]
            if not node.waits:
                ends[node.rows[0]] = arrivals[0] + lengths_ns[node.rows[0]]
                continue
            last = np.maximum.reduce(arrivals)
            if node.meets:
                last = np.broadcast_to(last.max(axis=1, keepdims=True), last.shape)
            for row in node.rows:
                ends[row] = last + lengths_ns[row]
        steps: Floats = ends[self._updates].max(axis=(0, 2))
        return steps

    def _start(self, row: int, ends: Floats) -> Floats:
        before = self._after[row]
        found: Floats = np.maximum.reduce([ends[at] for at in before]) if before else np.zeros(ends.shape[1:])
        return found


def _order(schedule: Schedule) -> list[_Node]:
    """Return the nodes so that each comes after all that its operations wait for."""
    nodes = [_Node(rows, at in schedule.meets, True) for at, rows in enumerate(schedule.groups)]
    grouped = {row for node in nodes for row in node.rows}
    nodes += [_Node((row,), False, False) for row in schedule.after if row not in grouped]
    home = {row: at for at, node in enumerate(nodes) for row in node.rows}
    before = [{home[b] for row in node.rows for b in schedule.after[row]} - {at} for at, node in enumerate(nodes)]
    following: list[list[int]] = [[] for _ in nodes]
    for at, found in enumerate(before):
        for other in found:
            following[other].append(at)
    missing = [len(found) for found in before]
    ready = deque(at for at, count in enumerate(missing) if not count)
    order = []
    while ready:
        at = ready.popleft()
        order.append(nodes[at])
        for other in following[at]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    if len(order) < len(nodes):
        raise ScheduleError("operations wait for each other in a circle")
    return order


def measure_transfers(job: Job, schedule: Schedule) -> Floats:
    """Return the length of each operation without waiting for others.

    A transfer lasts from the arrival of its last participant to its end. Clocks that disagree make that negative:
    what is more than 10 ms below zero counts as nothing.
    """
    lengths = job.duration_ns.copy()
    ends = job.end_ns
    for at, rows in enumerate(schedule.groups):
        arrivals = np.maximum.reduce([job.start_ns[row] for row in rows])
        if at in schedule.meets:
            arrivals = np.broadcast_to(arrivals.max(axis=1, keepdims=True), arrivals.shape)
        for row in rows:
            own = ends[row] - arrivals
            lengths[row] = np.where(own <= -10e6, 0.0, own)
    return lengths
