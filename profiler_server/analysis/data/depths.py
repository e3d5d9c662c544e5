"""Queue depths as the training thread found them: by step, and over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, Mask
from collector.format.parts import find_files, read_files
from collector.format.run import RankRun
from collector.format.words import QUEUES

HOST_QUEUE, DEVICE_QUEUE = QUEUES

_COLUMNS = ("step", "start_ns", "loader", "queue", "depth", "capacity", "next_ready", "out_of_order")


@dataclass(frozen=True)
class QueueKey:
    """One queue of the run. `loader` is None for a queue of the user's."""

    loader: int | None
    name: str


@dataclass(frozen=True)
class DepthByStep:
    """Depth that each step found, in step order; the lowest one where a step fetched more than once."""

    key: QueueKey
    capacity: int
    steps: Ints
    depths: Ints


@dataclass(frozen=True)
class DepthOverTime:
    """Every sample of one queue. `blocked` marks where batches were ready, but not the next one in order."""

    key: QueueKey
    capacity: int
    steps: Ints
    starts_ns: Ints
    depths: Ints
    blocked: Mask


def read_queues(rank: RankRun) -> pa.Table:
    """Read the samples in time order; none where they were never written, as in a run without workers.

    Raises TableBrokenError or NewerSchemaError.
    """
    if not find_files(rank.folder, "queues"):
        return read_files((), "queues", _COLUMNS)
    return rank.table("queues", _COLUMNS).sort_by("start_ns")


def renumber_samples(queues: pa.Table, starts_ns: Ints) -> pa.Table:
    """Return the samples with the number of the batch that asked, from 1: `starts_ns` is where each batch began."""
    numbers = np.maximum(np.searchsorted(starts_ns, queues["start_ns"].to_numpy(), side="right"), 1)
    return queues.set_column(queues.schema.get_field_index("step"), "step", pa.array(numbers, pa.int64()))


def list_queues(queues: pa.Table) -> tuple[QueueKey, ...]:
    """Return the queues that have samples: loaders in order, host before device side, then the user's own."""
    pairs = queues.group_by(["loader", "queue"], use_threads=False).aggregate([]).to_pylist()
    keys = [QueueKey(None if (row["loader"] or 0) < 0 else row["loader"], row["queue"]) for row in pairs]
    order = {HOST_QUEUE: 0, DEVICE_QUEUE: 1}
    return tuple(sorted(keys, key=lambda key: (key.loader is None, key.loader or 0, order.get(key.name, 2), key.name)))


def trace_by_step(queues: pa.Table, key: QueueKey) -> DepthByStep:
    """Return the depth that each step found in one queue."""
    samples = of_queue(queues, key)
    grouped = samples.group_by("step", use_threads=False).aggregate([("depth", "min")]).sort_by("step")
    return DepthByStep(key, _capacity(samples), grouped["step"].to_numpy(), grouped["depth_min"].to_numpy())


def trace_over_time(queues: pa.Table, key: QueueKey) -> DepthOverTime:
    """Return every sample of one queue in time order."""
    samples = of_queue(queues, key)
    ready = pc.fill_null(samples["next_ready"], True)
    blocked = pc.and_(pc.invert(ready), pc.greater(samples["depth"], 0))
    return DepthOverTime(
        key=key,
        capacity=_capacity(samples),
        steps=samples["step"].to_numpy(),
        starts_ns=samples["start_ns"].to_numpy(),
        depths=samples["depth"].to_numpy(),
        blocked=blocked.to_numpy(),
    )


def of_queue(queues: pa.Table, key: QueueKey) -> pa.Table:
    loader = pc.fill_null(queues["loader"], -1)
    same = pc.equal(loader, -1 if key.loader is None else key.loader)
    return queues.filter(pc.and_(same, pc.equal(queues["queue"], key.name)))


def _capacity(samples: pa.Table) -> int:
    return pc.max(samples["capacity"]).as_py() or 0
