"""The depth of the data pipeline's queues: in total, by step, over time, and whether the next batch was ready."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, Mask
from collector.format.run import RankRun
from collector.format.steps import read_integers
from collector.format.words import QUEUES
from profiler_server.analysis.tables import choose, find_places, read_rows
from profiler_server.diagnosis.limits.data import LATE_NS, LATE_RATIO
from profiler_server.facts.loading import Readiness
from profiler_server.facts.pipeline import QueueSummary

HOST_QUEUE, DEVICE_QUEUE = QUEUES

_COLUMNS = ("step", "start_ns", "loader", "queue", "depth", "capacity", "next_ready", "out_of_order")


@dataclass(frozen=True)
class QueueKey:
    """One queue of the run. `loader` is the number of its loader; None for a queue that the script made."""

    loader: int | None
    name: str


@dataclass(frozen=True)
class DepthByStep:
    """The depth of a queue (its number of batches) at each step's request, in step order. Of several requests, the
    lowest depth counts.
    """

    capacity: int
    steps: Ints
    depths: Ints


@dataclass(frozen=True)
class DepthOverTime:
    """All samples of one queue's depth. `blocked` marks samples at which batches were ready, but not the next one in
    order.
    """

    capacity: int
    steps: Ints
    starts_ns: Ints
    depths: Ints
    blocked: Mask


def read_queues(rank: RankRun) -> pa.Table:
    """Read the samples of all queues in time order; empty in a run without workers. Raises TableBrokenError or
    NewerSchemaError.

    The training thread may receive batches ahead of their turn. They count in the depth of the queue from which that
    thread reads.
    """
    return add_received(read_rows(rank, "queues", _COLUMNS).sort_by("start_ns"))


def add_received(samples: pa.Table) -> pa.Table:
    """Return the samples. Batches received ahead of their turn are added to the depth of the loader's last queue."""
    pinned = pc.unique(choose(samples, "queue", DEVICE_QUEUE)["loader"])
    is_device = pc.equal(samples["queue"].cast(pa.string()), DEVICE_QUEUE)
    is_last = pc.or_(is_device, pc.invert(pc.is_in(samples["loader"], pinned)))
    received = pc.if_else(is_last, pc.fill_null(samples["out_of_order"], 0), 0)
    return samples.set_column(samples.schema.get_field_index("depth"), "depth", pc.add(samples["depth"], received))


def renumber_samples(queues: pa.Table, starts_ns: Ints) -> pa.Table:
    """Return the samples with `step` set to the number of the batch, from 1. `starts_ns` has each batch's start."""
    numbers = np.maximum(np.searchsorted(starts_ns, queues["start_ns"].to_numpy(), side="right"), 1)
    return queues.set_column(queues.schema.get_field_index("step"), "step", pa.array(numbers, pa.int64()))


def list_queues(queues: pa.Table) -> tuple[QueueKey, ...]:
    """Return the queues that have samples: for each loader the host queue and the device queue, then the user's own."""
    pairs = queues.group_by(["loader", "queue"], use_threads=False).aggregate([]).to_pylist()
    keys = [QueueKey(None if (row["loader"] or 0) < 0 else row["loader"], row["queue"]) for row in pairs]
    return tuple(sorted(keys, key=lambda key: (key.loader is None, key.loader or 0, _rank_queue(key.name), key.name)))


def trace_by_step(queues: pa.Table, key: QueueKey) -> DepthByStep:
    samples = of_queue(queues, key)
    grouped = samples.group_by("step", use_threads=False).aggregate([("depth", "min")]).sort_by("step")
    return DepthByStep(_capacity(samples), grouped["step"].to_numpy(), grouped["depth_min"].to_numpy())


def trace_over_time(queues: pa.Table, key: QueueKey) -> DepthOverTime:
    samples = of_queue(queues, key)
    ready = pc.fill_null(samples["next_ready"], True)
    blocked = pc.and_(pc.invert(ready), pc.greater(samples["depth"], 0))
    return DepthOverTime(
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


def summarize_queues(rank: RankRun) -> tuple[QueueSummary, ...]:
    """Return one row per queue, sorted by loader, then in the order in which a batch passes the queues; empty without
    samples.

    If queues of several DataLoaders have the same name, the number of the loader is added to the name.
    """
    return sum_queues(read_queues(rank))


def sum_queues(samples: pa.Table) -> tuple[QueueSummary, ...]:
    """Summarise these samples from `read_queues`, as `summarize_queues` does for a whole rank."""
    if not samples.num_rows:
        return ()
    empty = pc.cast(pc.equal(samples["depth"], 0), pa.int64())
    grouped = samples.append_column("empty", empty).group_by(["queue", "loader"], use_threads=False)
    rows = grouped.aggregate(
        [("depth", "sum"), ("capacity", "sum"), ("capacity", "max"), ("empty", "sum"), ("depth", "count")]
    ).to_pylist()
    names = [row["queue"] for row in rows]
    rows.sort(key=lambda row: (row["loader"] or 0, _rank_queue(row["queue"])))
    return tuple(
        QueueSummary(
            name=row["queue"] if names.count(row["queue"]) == 1 else f"{row['queue']} (loader {row['loader']})",
            capacity=row["capacity_max"],
            mean_depth=row["depth_sum"] / row["depth_count"],
            usage_frac=row["depth_sum"] / row["capacity_sum"] if row["capacity_sum"] else 0.0,
            empty_frac=row["empty_sum"] / row["depth_count"],
            samples=row["depth_count"],
        )
        for row in rows
    )


def _rank_queue(name: str) -> int:
    return QUEUES.index(name) if name in QUEUES else len(QUEUES)


def summarize_readiness(samples: pa.Table, loader: int | None, steps: pa.Table | None = None) -> tuple[Readiness, ...]:
    """Return for each queue of a loader how often the next batch in order was not ready. `samples` is from
    `read_queues`. With `loader` None, the queues of all loaders count.

    `steps` are rows of the table `steps` with `step` and `data_wait_ns`. They give the cost of the missing batches.
    """
    if loader is not None:
        samples = samples.filter(pc.equal(samples["loader"], loader))
    found = []
    for name in sorted(pc.unique(samples["queue"].cast(pa.string())).to_pylist(), key=_rank_queue):
        rows = choose(samples, "queue", name)
        waits = _find_waits(steps, read_integers(rows, "step")) if steps is not None else None
        ready = _find_ready(rows, waits)
        # If the next batch is missing, the batches in the queue wait for it.
        unseen = ~rows["next_ready"].is_valid().to_numpy() & (read_integers(rows, "depth") > 0)
        held_up = ~ready & ((read_integers(rows, "out_of_order", absent=0) > 0) | unseen)
        late = _share_wait(steps, read_integers(rows, "step")[~ready]) if steps is not None else 0.0
        found.append(Readiness(name, float(1 - ready.mean()), float(held_up.mean()), late))
    return tuple(found)


def _find_ready(rows: pa.Table, waits: Ints | None) -> Mask:
    """Return a mask of the requests whose batch was ready.

    If `next_ready` was not recorded, the depth decides. But a queue may hold only later batches. So a request whose
    wait (in `waits`) is much longer than usual counts as not ready.
    """
    known = rows["next_ready"].is_valid().to_numpy()
    ready = np.asarray(pc.fill_null(rows["next_ready"], pc.greater(rows["depth"], 0)).to_numpy(), dtype=np.bool_)
    if waits is None or known.all() or not ready[known].any():
        return ready
    usual_ns = float(np.median(waits[known & ready]))
    in_time = waits <= LATE_RATIO * usual_ns + LATE_NS
    return np.asarray(ready & (known | in_time), dtype=np.bool_)


def _find_waits(steps: pa.Table, numbers: Ints) -> Ints:
    places = find_places(read_integers(steps, "step"), numbers)
    return np.where(places >= 0, np.append(read_integers(steps, "data_wait_ns"), 0)[places], 0)


def _share_wait(steps: pa.Table, chosen: Ints) -> float:
    waits = read_integers(steps, "data_wait_ns")
    whole = float(waits.sum())
    return float(waits[np.isin(read_integers(steps, "step"), chosen)].sum()) / whole if whole else 0.0
