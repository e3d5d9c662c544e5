"""The operations of a job of many ranks as arrays: one row per operation of a pipeline, one cell per step and replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints
from collector.format.steps import read_integers

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
    """One operation of the schedule that every replica of the pipeline follows. `sequence` counts those of its kind."""

    kind: str
    sequence: int
    stage: int


@dataclass(frozen=True)
class Job:
    """The steps of a job that were recorded whole.

    `start_ns` and `duration_ns` are (operations, steps, replicas), since the start of their step. `ranks` is the rank of
    each (stage, replica). `chunk` and `depth` number the part of the model that an operation computes: on its stage,
    and among all stages in the order of the model; -1 where it computes none.
    """

    operations: tuple[Operation, ...]
    steps: Ints
    start_ns: Floats
    duration_ns: Floats
    ranks: Ints
    chunk: Ints
    depth: Ints
    left_out: int = 0

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
        """Return the operations of a stage and of some kinds in the order in which the first replica began them."""
        rows = [row for row, op in enumerate(self.operations) if op.stage == stage and op.kind in kinds]
        rows.sort(key=lambda row: (self.start_ns[row, 0, 0], self.operations[row].sequence, self.operations[row].kind))
        return np.array(rows, dtype=np.int64)


def build_job(table: pa.Table) -> Job | None:
    """Arrange a `job_operations` table of all ranks; None where no step has every operation of every replica.

    Steps in which an operation is missing or doubled are left out and counted.
    """
    columns = ("step", "stage", "replica", "sequence", "rank", "start_ns", "duration_ns", "chunk", "depth")
    rows = {name: read_integers(table, name, -1) for name in columns}
    kinds = table.column("kind").cast(pa.string()).to_numpy(zero_copy_only=False)
    keys = sorted(
        {Operation(str(k), int(q), int(s)) for k, q, s in zip(kinds, rows["sequence"], rows["stage"], strict=True)}
    )
    if not keys or rows["stage"].min() < 0 or rows["replica"].min() < 0:
        return None
    number = {key: at for at, key in enumerate(keys)}
    operation = np.array(
        [
            number[Operation(str(k), int(q), int(s))]
            for k, q, s in zip(kinds, rows["sequence"], rows["stage"], strict=True)
        ]
    )
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
    left_out = int((~whole).sum())
    return Job(tuple(keys), steps[whole], start[:, whole], duration[:, whole], ranks, chunk, depth, left_out)
