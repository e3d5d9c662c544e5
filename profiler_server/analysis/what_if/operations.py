"""The operations of a pipeline-parallel job, and the operations for which each of them waits.

Operations are arrays: a row per operation of a pipeline, a cell per step and replica (copy of the pipeline).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints
from collector.format.steps import read_integers
from profiler_server.diagnosis.limits.stragglers import FILLING_NS

FORWARD, BACKWARD = "forward-compute", "backward-compute"
POINT_TO_POINT = ("forward-send", "forward-recv", "backward-send", "backward-recv")
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
NORM, EMBEDDING, CLIP, UPDATE, COLLECT = (
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
    "gc",
)
REPLICATED = (GATHER, SCATTER, SEPARATE, CLIP)
"""Operations in which the replicas of a stage meet."""


@dataclass(frozen=True, order=True)
class Operation:
    """One operation of the schedule that every replica follows. `sequence` is its number within its kind and stage."""

    kind: str
    sequence: int
    stage: int


@dataclass(frozen=True)
class Job:
    """The completely recorded steps of a job.

    `start_ns` and `duration_ns` have the shape (operations, steps, replicas). Starts count from the start of the step.
    `ranks` is the rank of each (stage, replica). `chunk` and `depth` number the model chunk that an operation computes:
    `chunk` on its stage, `depth` among all stages in model order. Both are -1 if the operation computes no chunk.
    """

    operations: tuple[Operation, ...]
    steps: Ints
    start_ns: Floats
    duration_ns: Floats
    ranks: Ints
    chunk: Ints
    depth: Ints

    @property
    def stages(self) -> int:
        return int(self.ranks.shape[0])

    @property
    def replicas(self) -> int:
        return int(self.ranks.shape[1])

    @property
    def end_ns(self) -> Floats:
        return self.start_ns + self.duration_ns

    def find(self, kinds: Sequence[str], stage: int) -> Ints:
        """Return the indexes of a stage's operations of these kinds, in the order in which they began on the first
        replica.
        """
        rows = [row for row, op in enumerate(self.operations) if op.stage == stage and op.kind in kinds]
        rows.sort(key=lambda row: (self.start_ns[row, 0, 0], self.operations[row].sequence, self.operations[row].kind))
        return np.array(rows, dtype=np.int64)


def build_job(table: pa.Table) -> Job | None:
    """Return the operations of a job from a `job_operations` table of all ranks.

    Steps with a missing or duplicate operation are left out. None if no step remains.
    """
    columns = ("step", "stage", "replica", "sequence", "rank", "start_ns", "duration_ns", "chunk", "depth")
    rows = {name: read_integers(table, name, -1) for name in columns}
    kinds = table.column("kind").cast(pa.string()).to_numpy(zero_copy_only=False)
    every = [Operation(str(k), int(q), int(s)) for k, q, s in zip(kinds, rows["sequence"], rows["stage"], strict=True)]
    if not every or rows["stage"].min() < 0 or rows["replica"].min() < 0:
        return None
    keys = sorted(set(every))
    number = {key: at for at, key in enumerate(keys)}
    operation = np.array([number[key] for key in every])
    steps, step = np.unique(rows["step"], return_inverse=True)
    replicas = int(rows["replica"].max()) + 1
    count = np.zeros((len(keys), len(steps), replicas), dtype=np.int64)
    np.add.at(count, (operation, step, rows["replica"]), 1)
    whole = (count == 1).all(axis=(0, 2))
    if not whole.any():
        return None
    start, duration = np.zeros(count.shape), np.zeros(count.shape)
    start[operation, step, rows["replica"]] = rows["start_ns"]
    duration[operation, step, rows["replica"]] = rows["duration_ns"]
    start -= start.min(axis=(0, 2), keepdims=True)
    ranks = np.full((int(rows["stage"].max()) + 1, replicas), -1, dtype=np.int64)
    ranks[rows["stage"], rows["replica"]] = rows["rank"]
    chunk, depth = np.full(len(keys), -1, dtype=np.int64), np.full(len(keys), -1, dtype=np.int64)
    chunk[operation], depth[operation] = rows["chunk"], rows["depth"]
    return Job(tuple(keys), steps[whole], start[:, whole], duration[:, whole], ranks, chunk, depth)


_NEXT = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}
_PEER = {
    "forward-send": "forward-recv",
    "forward-recv": "forward-send",
    "backward-send": "backward-recv",
    "backward-recv": "backward-send",
}


class ScheduleError(ValueError):
    """The operations do not form the schedule of a pipeline. The text of the exception is the reason."""


@dataclass
class Schedule:
    """The order of a job's operations, which are given by index. `after[v]` are the operations for which operation v
    waits. Each of `groups` has operations that end together.

    `meets` are the indexes of the groups whose operations end together in all replicas. An operation outside of groups
    is computed by one rank alone.
    """

    after: dict[int, set[int]]
    groups: list[tuple[int, ...]] = field(default_factory=list)
    meets: set[int] = field(default_factory=set)

    def chain(self, rows: Iterable[int], first: Iterable[int] = ()) -> None:
        """Make each operation wait for the previous one, and the first operation wait for `first`."""
        before = set(first)
        for row in rows:
            self.after[row] |= before
            before = {row}


def read_schedule(job: Job) -> Schedule:
    """Return the schedule of a job. Raises ScheduleError if the operations are not those of a pipeline."""
    reader = _Reader(job)
    for stage in range(job.stages):
        reader.read_stage(stage)
    reader.pair_transfers()
    reader.group_collectives()
    return reader.schedule


class _Reader:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.number = {operation: row for row, operation in enumerate(job.operations)}
        self.schedule = Schedule({row: set() for row in range(len(job.operations))})
        self.kinds = {operation.kind for operation in job.operations}
        self.overlaps = SEPARATE in self.kinds
        self.replicated = job.replicas > 1
        self.total_depth = job.stages * (int(job.chunk.max()) + 1)
        self.start = job.start_ns[:, 0, 0]
        self.end = job.end_ns[:, 0, 0]
        self.transfers: dict[tuple[str, int], list[int]] = {}
        self.idle: list[int] = []

    def read_stage(self, stage: int) -> None:
        computed = self.job.find((FORWARD, BACKWARD), stage)
        if not len(computed):
            raise ScheduleError(f"stage {stage} computes nothing")
        self.schedule.chain(computed.tolist())
        for kind in POINT_TO_POINT:
            rows = self.job.find((kind,), stage).tolist()
            self.schedule.chain(rows)
            self._match_transfers(kind, stage, rows)
        self._hold_first_backward(stage, computed.tolist())
        if self.replicated:
            self.schedule.chain(self.job.find((GATHER, SCATTER), stage).tolist())
            self._gather_before_use(stage)
            if self.overlaps:
                self._scatter_after_use(stage)
        self._end_step(stage, computed)

    def _row(self, kind: str, sequence: int, stage: int) -> int:
        try:
            return self.number[Operation(kind, sequence, stage)]
        except KeyError:
            raise ScheduleError(f"stage {stage} has no {kind} number {sequence}") from None

    def _match_transfers(self, kind: str, stage: int, rows: list[int]) -> None:
        """Link each transfer to the computation before or after it. A transfer at the start or end of a step without
        such a computation is idle.
        """
        direction, way = kind.split("-")
        compute = f"{direction}-compute"
        computed = self.job.find((compute,), stage)
        is_recv = way == "recv"
        if is_recv:
            used = [row for row in rows if self.start[row] <= self.start[computed].max() + FILLING_NS]
        else:
            used = [row for row in rows if self.end[row] >= self.end[computed].min() - FILLING_NS]
        self.idle += [row for row in rows if row not in used]
        if len(used) not in (0, len(computed) - 1, len(computed)):
            raise ScheduleError(f"stage {stage} has {len(used)} {kind} for {len(computed)} {compute}")
        first = 1 if is_recv and used and len(used) == len(computed) - 1 else 0
        for sequence, row in enumerate(used, first):
            self._tie(row, self._row(compute, sequence, stage), sequence, is_recv)
            peer_depth = self.job.depth[self._row(compute, sequence, stage)] + _NEXT[kind]
            if 0 <= peer_depth < self.total_depth:
                self.transfers.setdefault((kind, stage), []).append(row)
            else:
                self.idle.append(row)

    def _tie(self, transfer: int, compute: int, sequence: int, is_recv: bool) -> None:
        if not is_recv:
            self.schedule.after[transfer].add(compute)
            return
        self.schedule.after[compute].add(transfer)
        operation = self.job.operations[compute]
        if sequence:
            self.schedule.after[transfer].add(self._row(operation.kind, sequence - 1, operation.stage))

    def _hold_first_backward(self, stage: int, computed: Sequence[int]) -> None:
        """Make the first transfers of the backward wait for the second-last forward before the first backward, because
        this forward launches them.
        """
        kinds = [self.job.operations[row].kind for row in computed]
        first = kinds.index(BACKWARD) if BACKWARD in kinds else 0
        if first < 2:
            return
        for kind in ("backward-recv", "backward-send"):
            row = self.number.get(Operation(kind, 0, stage))
            if row is not None:
                self.schedule.after[row].add(computed[first - 2])

    def _gather_before_use(self, stage: int) -> None:
        for row in self._last_of_chunk(self.job.find((GATHER,), stage), from_end=True):
            used = [r for r in self.job.find((FORWARD,), stage) if self.job.chunk[r] == self.job.chunk[row]]
            if used:
                self.schedule.after[min(used, key=lambda r: float(self.start[r]))].add(row)

    def _scatter_after_use(self, stage: int) -> None:
        for row in self._last_of_chunk(self.job.find((SCATTER,), stage), from_end=False):
            used = [r for r in self.job.find((BACKWARD,), stage) if self.job.chunk[r] == self.job.chunk[row]]
            if used:
                self.schedule.after[row].add(max(used, key=lambda r: float(self.end[r])))

    def _last_of_chunk(self, rows: np.ndarray, *, from_end: bool) -> list[int]:
        """Return one collective of `rows` for each chunk of the model: with `from_end` the last one of the chunk, else
        the first.
        """
        ordered = sorted(rows.tolist(), key=lambda row: self.job.operations[row].sequence, reverse=from_end)
        chosen: dict[int, int] = {}
        for row in ordered:
            chosen.setdefault(int(self.job.chunk[row]), row)
        return list(chosen.values())

    def _end_step(self, stage: int, computed: np.ndarray) -> None:
        last = int(computed[int(np.argmax(self.end[computed]))])
        scatter = self.job.find((SCATTER,), stage).tolist()
        rows = self._rows_of(COLLECT, stage)
        self.schedule.chain(rows, (last,))
        before = [rows[-1] if rows else last]
        chain = self._rows_of(NORM, stage)
        if stage in (0, self.job.stages - 1):
            chain += self._rows_of(EMBEDDING, stage)
        if self.replicated and self.overlaps:
            before += scatter[-1:]
            chain += self._rows_of(SEPARATE, stage)
        elif self.replicated:
            chain += sorted(scatter, key=lambda row: self.job.operations[row].sequence)
        chain += [*self._rows_of(CLIP, stage), *self._rows_of(UPDATE, stage)]
        if not chain:
            raise ScheduleError(f"stage {stage} does not end its steps")
        self.schedule.chain(chain, before)

    def _rows_of(self, kind: str, stage: int) -> list[int]:
        row = self.number.get(Operation(kind, 0, stage))
        return [] if row is None else [row]

    def pair_transfers(self) -> None:
        for (kind, stage), rows in self.transfers.items():
            if kind.endswith("recv"):
                continue
            peer = (stage + _NEXT[kind]) % self.job.stages
            others = self.transfers.get((_PEER[kind], peer), [])
            if len(others) != len(rows):
                raise ScheduleError(f"stage {stage} sends {len(rows)} times, stage {peer} receives {len(others)} times")
            self.schedule.groups += list(zip(rows, others, strict=True))
        self.schedule.groups += [(row,) for row in self.idle]

    def group_collectives(self) -> None:
        groups = self.schedule.groups
        for row, operation in enumerate(self.job.operations):
            if self.replicated and operation.kind in (GATHER, SCATTER, SEPARATE):
                groups.append((row,))
        for kind, stages in ((EMBEDDING, {0, self.job.stages - 1}), (CLIP, set(range(self.job.stages)))):
            rows = tuple(row for stage in sorted(stages) for row in self._rows_of(kind, stage))
            if rows:
                groups.append(rows)
        self.schedule.meets = {at for at, rows in enumerate(groups) if self.job.operations[rows[0]].kind in REPLICATED}
