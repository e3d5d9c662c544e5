"""A replay of a job's operations with other durations: the slowdown of the job compared with ranks that are alike, and
the ranks or operations that cause it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Mask
from profiler_server.analysis.what_if.operations import (
    BACKWARD,
    CLIP,
    EMBEDDING,
    FORWARD,
    GATHER,
    NORM,
    POINT_TO_POINT,
    SCATTER,
    SEPARATE,
    UPDATE,
    Job,
    Schedule,
    ScheduleError,
    read_schedule,
)
from profiler_server.analysis.what_if.steps import choose_worst, distrust
from profiler_server.diagnosis.limits.stragglers import MOST_DISCREPANCY
from profiler_server.facts.ranks import JobSlowdown


@dataclass(frozen=True)
class _Node:
    """Operations that end together, as indexes. `meets`: they end together in all replicas. `waits` is False for a
    computation of one rank.
    """

    rows: tuple[int, ...]
    meets: bool
    waits: bool


class Replay:
    """A replay of one schedule. Lengths are durations in ns of the shape (operations, steps, replicas). The length of a
    transfer counts from the arrival of its last participant.
    """

    def __init__(self, job: Job, schedule: Schedule) -> None:
        """Prepare the replay. Raises ScheduleError if operations wait in a circle, or if no step ends with an
        optimizer."""
        self._after = schedule.after
        self._updates = [row for row, operation in enumerate(job.operations) if operation.kind == UPDATE]
        self._order = _order(schedule)
        if not self._updates:
            raise ScheduleError("no step ends with an optimizer")

    def run(self, lengths_ns: Floats) -> Floats:
        """Return the length of each step in ns. A step lasts until the last stage of the last replica has updated."""
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
        return np.maximum.reduce([ends[at] for at in before]) if before else np.zeros(ends.shape[1:])


def _order(schedule: Schedule) -> list[_Node]:
    """Return the nodes in an order in which each node follows the nodes for which its operations wait."""
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
    """Return the length of each operation in ns without its wait for others.

    A transfer lasts from the arrival of its last participant to its end. If clocks disagree, the length may become
    negative. A length below -10 ms is replaced by 0.
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


MOST_EXAMINED = 128
_COMMUNICATION = (*POINT_TO_POINT, GATHER, SCATTER, SEPARATE, NORM, EMBEDDING, CLIP)


def replay_job(job: Job) -> JobSlowdown:
    """Return the slowdown of a job against alike ranks, and its causes. Raises ScheduleError if it is no pipeline."""
    schedule = read_schedule(job)
    replay = Replay(job, schedule)
    measured = measure_transfers(job, schedule)
    ideal = _even_out(job, measured)
    whole = float((job.end_ns.max(axis=(0, 2)) - job.start_ns.min(axis=(0, 2))).mean())
    base, best = float(replay.run(measured).mean()), float(replay.run(ideal).mean())
    discrepancy = whole / base - 1.0
    if abs(discrepancy) >= MOST_DISCREPANCY:
        return distrust(discrepancy, "replay")
    return _Questions(job, replay, measured, ideal, base, best).answer(discrepancy)


class _Questions:
    """The step times of changed jobs: some operations are as measured and all others ideal, or some are ideal and all
    others as measured.
    """

    def __init__(self, job: Job, replay: Replay, measured: Floats, ideal: Floats, base: float, best: float) -> None:
        self._job, self._replay = job, replay
        self._measured, self._ideal = measured, ideal
        self._base, self._best = base, best

    def answer(self, discrepancy: float) -> JobSlowdown:
        job = self._job
        merged = np.array([_merge(operation.kind) for operation in job.operations])
        kinds = sorted(set(merged.tolist()))
        stage = np.array([operation.stage for operation in job.operations])
        replicas = np.arange(job.replicas)[None, None, :]
        by_replica = [self._keep(replicas == replica) for replica in range(job.replicas)]
        by_stage = [self._keep(self._of_rows(stage == number)) for number in range(job.stages)]
        bounds = {
            int(job.ranks[number, replica]): min(by_replica[replica], by_stage[number])
            for number in range(job.stages)
            for replica in range(job.replicas)
        }
        # Each rank takes two replays: of a huge job, those that can matter are examined.
        examined = sorted(sorted(bounds, key=lambda rank: (-bounds[rank], rank))[:MOST_EXAMINED])
        slowdown = self._base / self._best
        return JobSlowdown(
            slowdown=slowdown,
            waste_frac=1.0 - 1.0 / slowdown,
            discrepancy_frac=discrepancy,
            by_operation={kind: self._keep(self._of_rows(merged == kind)) for kind in kinds},
            by_rank={rank: self._keep(self._of_ranks({rank})) for rank in examined},
            by_stage=dict(enumerate(by_stage)),
            worker_share=self._mend_share(self._of_ranks(choose_worst(bounds))),
            stage_share=self._mend_share(self._of_rows(stage == job.stages - 1)),
            mend_rank_gain_ns={rank: self._base - self._mend(self._of_ranks({rank})) for rank in examined},
            even_stages_frac=self._gain_frac(_even_stages(job, self._measured)),
            even_work_frac=self._gain_frac(_even_work(job, self._measured)),
            method="replay",
            stages=tuple(tuple(sorted(stage)) for stage in job.ranks.tolist()),
        )

    def _keep(self, chosen: Mask) -> float:
        return float(self._replay.run(np.where(chosen, self._measured, self._ideal)).mean()) / self._best

    def _mend(self, chosen: Mask) -> float:
        return float(self._replay.run(np.where(chosen, self._ideal, self._measured)).mean())

    def _mend_share(self, chosen: Mask) -> float | None:
        lost = self._base - self._best
        return (self._base - self._mend(chosen)) / lost if lost > 0 else None

    def _gain_frac(self, lengths: Floats) -> float:
        return 1.0 - float(self._replay.run(lengths).mean()) / self._base

    def _of_rows(self, rows: Mask) -> Mask:
        return rows[:, None, None]

    def _of_ranks(self, ranks: set[int]) -> Mask:
        job = self._job
        stage = np.array([operation.stage for operation in job.operations])
        chosen: Mask = np.isin(job.ranks, list(ranks))[stage][:, None, :]
        return chosen


def _even_out(job: Job, lengths: Floats) -> Floats:
    """Return the lengths of the ideal job: computations have the mean of their kind, communication the median."""
    ideal = lengths.copy()
    of_kind: dict[str, list[int]] = {}
    for row, operation in enumerate(job.operations):
        of_kind.setdefault(operation.kind, []).append(row)
    for kind, rows in of_kind.items():
        even: Callable[[Floats], float] = np.median if kind in _COMMUNICATION else np.mean
        ideal[rows] = float(even(lengths[rows]))
    return ideal


def _even_stages(job: Job, measured: Floats) -> Floats:
    """Return lengths with the same mean work in all stages. Variation within a stage stays."""
    lengths = measured.copy()
    for kind in (FORWARD, BACKWARD):
        stages = [rows for stage in range(job.stages) if len(rows := job.find((kind,), stage))]
        for rows in stages:
            lengths[rows] *= float(measured[np.concatenate(stages)].mean()) / float(measured[rows].mean())
    return lengths


def _even_work(job: Job, measured: Floats) -> Floats:
    """Return lengths with the same work in all micro-batches that one chunk of a stage computes."""
    lengths = measured.copy()
    chunks: dict[tuple[str, int, int], list[int]] = {}
    for row, operation in enumerate(job.operations):
        if operation.kind in (FORWARD, BACKWARD):
            chunks.setdefault((operation.kind, operation.stage, int(job.chunk[row])), []).append(row)
    for rows in chunks.values():
        lengths[rows] = float(measured[rows].mean())
    return lengths


def _merge(kind: str) -> str:
    """Return the kind that communication is counted under: a send and a receive of one direction have the same kind."""
    return f"{kind.split('-')[0]}-pp-comm" if kind in POINT_TO_POINT else kind
