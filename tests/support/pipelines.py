"""Jobs that pass micro-batches through stages, and what their operations wait for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler_server.analysis.what_if.operations import (
    BACKWARD,
    CLIP,
    COLLECT,
    EMBEDDING,
    FORWARD,
    GATHER,
    NORM,
    SCATTER,
    SEPARATE,
    UPDATE,
    Job,
    Operation,
    Schedule,
)

MS = 1e6
SEND, TAKE, SEND_BACK, TAKE_BACK = "forward-send", "forward-recv", "backward-send", "backward-recv"
Times = dict[tuple[str, int, int], tuple[float, float]]
END = {COLLECT: (26, 26.5), NORM: (26.5, 27), EMBEDDING: (27, 28), CLIP: (28, 29), UPDATE: (29, 30)}
PIPELINE: Times = {
    **{(FORWARD, n, 0): (2 * n, 2 * n + 2) for n in range(3)},
    **{(SEND, n, 0): (2 * n + 2, 2 * n + 3) for n in range(3)},
    **{(TAKE, n, 1): (6 * n - 1, 6 * n + 3) for n in range(3)},
    **{(FORWARD, n, 1): (6 * n + 3, 6 * n + 5) for n in range(3)},
    **{(BACKWARD, n, 1): (6 * n + 5, 6 * n + 9) for n in range(3)},
    **{(SEND_BACK, n, 1): (6 * n + 9, 6 * n + 10) for n in range(3)},
    **{(TAKE_BACK, n, 0): (6 * n + 6, 6 * n + 10) for n in range(3)},
    **{(BACKWARD, n, 0): (6 * n + 10, 6 * n + 14) for n in range(3)},
    **{(kind, 0, stage): times for kind, times in END.items() for stage in (0, 1)},
}
"""When each operation begins and ends, in ms, by kind, number and stage."""
CHUNKED: Times = {
    **{(GATHER, n, 0): (n, n + 1) for n in range(3)},
    **{(FORWARD, n, 0): (3 + n, 4 + n) for n in range(3)},
    **{(BACKWARD, n, 0): (6 + n, 7 + n) for n in range(3)},
    **{(SCATTER, n, 0): (8 + n, 9 + n) for n in range(3)},
    (SEPARATE, 0, 0): (12, 13),
    (UPDATE, 0, 0): (13, 14),
}
CHUNKS = {
    **{(FORWARD, n, 0): chunk for n, chunk in enumerate((0, 0, 1))},
    **{(BACKWARD, n, 0): chunk for n, chunk in enumerate((1, 0, 0))},
    **{(GATHER, n, 0): chunk for n, chunk in enumerate((0, 0, 1))},
    **{(SCATTER, n, 0): chunk for n, chunk in enumerate((1, 0, 0))},
}


def make_job(times: Times, chunks: Mapping[tuple[str, int, int], int] | None = None, replicas: int = 1) -> Job:
    """Return a job whose replicas all do the same, in one step. Chunks lie behind one another, stage by stage."""
    operations = tuple(sorted(Operation(*key) for key in times))
    spans = np.array([times[op.kind, op.sequence, op.stage] for op in operations]) * MS
    stages = 1 + max(op.stage for op in operations)
    computes = np.array([op.kind in (FORWARD, BACKWARD) for op in operations])
    if chunks is None:
        chunk = np.where(computes, 0, -1)
    else:
        chunk = np.array([chunks.get((op.kind, op.sequence, op.stage), -1) for op in operations])
    depth = np.where(computes, chunk * stages + np.array([op.stage for op in operations]), -1)
    start = np.repeat(spans[:, 0, None, None], replicas, axis=2)
    length = np.repeat((spans[:, 1] - spans[:, 0])[:, None, None], replicas, axis=2)
    ranks = np.arange(stages * replicas).reshape(stages, replicas)
    return Job(operations, np.array([7]), start, length, ranks, chunk, depth)


def name(job: Job, row: int) -> tuple[str, int, int]:
    operation = job.operations[row]
    return operation.kind, operation.sequence, operation.stage


def list_waits(job: Job, schedule: Schedule, kind: str, stage: int) -> list[set[tuple[str, int, int]]]:
    """Return what each operation of a kind waits for."""
    rows = [row for row, op in enumerate(job.operations) if (op.kind, op.stage) == (kind, stage)]
    return [{name(job, before) for before in schedule.after[row]} for row in rows]


def list_groups(job: Job, schedule: Schedule) -> list[list[tuple[str, int, int]]]:
    return sorted([name(job, row) for row in rows] for rows in schedule.groups)
