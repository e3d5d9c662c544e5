"""The data pipeline: how full its queues were, what its stages did, and which of them limits the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import read_integers
from profiler_server.analysis.data.replicas import order_stages
from profiler_server.analysis.memory.host import HostLoad, summarize_host
from profiler_server.analysis.results import QueueSummary, StageSummary

QUEUE_ORDER = ("worker_queue", "pin_queue")
WORKER_STAGES = ("read", "transform", "collate", "send")
NOT_READY_LIMIT = 0.3
"""A queue is low when the next batch in order was missing in a larger share of the samples than this."""
_LATE_WAIT = 0.5

_QUEUE_COLUMNS = ("step", "loader", "queue", "depth", "capacity", "next_ready", "out_of_order")
_STAGE_COLUMNS = ("stage", "replica", "kind", "loader", "epoch", "batch", "start_ns", "duration_ns")


@dataclass(frozen=True)
class Readiness:
    """What the training thread found when it asked for a batch. Shares are of the samples.

    A queue that is not empty can still lack the batch that is next in order: `held_up_frac` counts those samples
    where later batches were done and waited for an earlier one. `late_wait_frac` is the share of all waiting for data
    that fell into steps which lacked their batch, 0 where that is not known.
    """

    queue: str
    samples: int
    not_ready_frac: float
    held_up_frac: float
    late_wait_frac: float = 0.0

    @property
    def is_late(self) -> bool:
        """Say whether batches are missing often, or what the step waits for are the few that are."""
        return self.not_ready_frac > NOT_READY_LIMIT or self.late_wait_frac > _LATE_WAIT


@dataclass(frozen=True)
class Bottleneck:
    """The stage that limits the step, None where every queue is full: then no data advice is due."""

    stage: str | None
    reason: str


def read_queues(rank: RankRun) -> pa.Table | None:
    """Read the queue samples of a rank, None if it has none. Raises TableBrokenError or NewerSchemaError."""
    return rank.table("queues", _QUEUE_COLUMNS) if find_files(rank.folder, "queues") else None


def summarize_queues(rank: RankRun) -> tuple[QueueSummary, ...]:
    """Return one row per queue, in the order in which a batch passes them; empty if none were sampled.

    Where several DataLoaders have a queue of one name, each name ends in the number of its loader.
    """
    samples = read_queues(rank)
    return () if samples is None else sum_queues(samples)


def sum_queues(samples: pa.Table) -> tuple[QueueSummary, ...]:
    """Summarise samples as `read_queues` reads them, such as those of one loader, as `summarize_queues` does."""
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
    return QUEUE_ORDER.index(name) if name in QUEUE_ORDER else len(QUEUE_ORDER)


def summarize_readiness(samples: pa.Table, loader: int | None, steps: pa.Table | None = None) -> tuple[Readiness, ...]:
    """Return per queue of a loader how often the next batch in order was not ready. `samples` is from `read_queues`.

    `steps` are rows of that table with `step` and `data_wait_ns`, to tell what the missing batches cost.
    """
    if loader is not None:
        samples = samples.filter(pc.equal(samples["loader"], loader))
    names = samples["queue"].combine_chunks().cast(pa.string())
    found = []
    for name in sorted(pc.unique(names).to_pylist(), key=_rank_queue):
        rows = samples.filter(pc.equal(names, name))
        ready = pc.fill_null(rows["next_ready"], pc.greater(rows["depth"], 0)).to_numpy().astype(bool)
        held_up = ~ready & (read_integers(rows, "out_of_order") > 0)
        late = _share_wait(steps, read_integers(rows, "step")[~ready]) if steps is not None else 0.0
        found.append(Readiness(name, len(ready), float(1 - ready.mean()), float(held_up.mean()), late))
    return tuple(found)


def _share_wait(steps: pa.Table, chosen: Ints) -> float:
    """Return the share of the wait for data that the chosen steps have."""
    waits = read_integers(steps, "data_wait_ns")
    whole = float(waits.sum())
    return float(waits[np.isin(read_integers(steps, "step"), chosen)].sum()) / whole if whole else 0.0


def summarize_stages(rank: RankRun) -> tuple[StageSummary, ...]:
    """Return one row per stage of the training loader and of the user's, in pipeline order; empty if none were recorded.

    `mean_ns` is work per batch. The shares are of the wall time of the replicas that ran the stage; a worker runs its
    stages one after the other, so their busy shares add up within it. A share is None where that kind of time was
    never recorded for the stage.
    """
    if not find_files(rank.folder, "stages"):
        return ()
    stages, loader = rank.table("stages", _STAGE_COLUMNS), find_loader(rank)
    if loader is not None:
        stages = stages.filter(pc.fill_null(pc.equal(stages["loader"], loader), True))
    return sum_stages(stages)


def find_loader(rank: RankRun) -> int | None:
    """Return the number of the loader that fed most training steps, None if there is none or no telling.

    Without steps it is the loader that most batches were fetched from, or else the one that says most of itself.
    """
    try:
        steps = rank.table("steps", ("kind", "loader"))
    except RunError:
        return _guess_loader(rank)
    trained = steps.filter(pc.equal(steps["kind"].cast(pa.string()), "train"))
    return find_most_used(trained if trained.num_rows else steps)


def _guess_loader(rank: RankRun) -> int | None:
    try:
        found = find_most_used(rank.table("fetches", ("loader",)))
    except RunError:
        found = None
    if found is not None:
        return found
    largest = max(rank.manifest.loaders, key=lambda loader: loader.length_batches or 0, default=None)
    return None if largest is None else largest.id


def find_most_used(steps: pa.Table) -> int | None:
    """Return the loader that most of these steps took their batch from, None if they took none."""
    used = steps["loader"].drop_null()
    if not len(used):
        return None
    most = max(pc.value_counts(used).to_pylist(), key=lambda entry: int(entry["counts"]))
    return int(most["values"])


def sum_stages(stages: pa.Table) -> tuple[StageSummary, ...]:
    """Summarise rows of `stages`, such as those of one loader, as `summarize_stages` does."""
    walls = _sum_walls(stages)
    work = count_batches(stages)
    rows = []
    for stage in order_stages(list(walls)):
        wall_ns, replicas, kinds = walls[stage]
        batches = work.get(stage, 0)
        shares = {kind: kinds[kind] / wall_ns if kind in kinds and wall_ns else None for kind in _SHARES}
        mean_ns = kinds.get("work", 0) / batches if batches else 0.0
        rows.append(StageSummary(stage, replicas, batches, mean_ns, *shares.values()))
    return tuple(rows)


_SHARES = ("work", "input_wait", "output_wait")


def _sum_walls(stages: pa.Table) -> dict[str, tuple[int, int, dict[str, int]]]:
    """Return per stage the wall time of its replicas, how many there were, and the sum of each kind of time.

    A replica is one worker of one epoch: workers that are not persistent are started anew for each. A stage of the
    user's has replicas of its own, which run nothing else.
    """
    keys = ["own", "replica", "loader", "epoch"]
    own = pc.if_else(pc.is_null(stages["loader"]), stages["stage"].cast(pa.string()), "")
    stages = stages.append_column("own", own)
    ends = pc.add(stages["start_ns"], stages["duration_ns"])
    spans = (
        stages.append_column("end_ns", ends)
        .group_by(keys, use_threads=False)
        .aggregate([("start_ns", "min"), ("end_ns", "max")])
    )
    wall = {tuple(row[key] for key in keys): row["end_ns_max"] - row["start_ns_min"] for row in spans.to_pylist()}
    found: dict[str, tuple[int, int, dict[str, int]]] = {}
    seen: dict[str, set[int]] = {}
    for row in stages.group_by(["stage", *keys], use_threads=False).aggregate([]).to_pylist():
        total, _, kinds = found.get(row["stage"], (0, 0, {}))
        seen.setdefault(row["stage"], set()).add(row["replica"])
        found[row["stage"]] = (total + wall[tuple(row[key] for key in keys)], len(seen[row["stage"]]), kinds)
    sums = stages.group_by(["stage", "kind"], use_threads=False).aggregate([("duration_ns", "sum")])
    for row in sums.to_pylist():
        found[row["stage"]][2][row["kind"]] = row["duration_ns_sum"]
    return found


def count_batches(stages: pa.Table) -> dict[str, int]:
    """Return how many batches each stage worked on; a batch that took several rows counts once."""
    work = stages.filter(pc.equal(stages["kind"].cast(pa.string()), "work"))
    # Replicas of a stage of the user's number their items each by itself.
    own = pc.if_else(pc.is_null(work["loader"]), work["replica"], -1)
    keys = ["stage", "loader", "epoch", "batch", "own"]
    grouped = work.append_column("own", own).group_by(keys, use_threads=False).aggregate([])
    counts = grouped.group_by("stage", use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return {row["stage"]: row["count_all"] for row in counts}


@dataclass(frozen=True)
class WorkerLoad:
    """How much of their time the workers work, and how much of that they need a processor (None: not recorded).

    Waiting for a processor that others hold is not counted as work.
    """

    busy_frac: float
    cpu_frac: float | None


def measure_load(rank: RankRun, stages: pa.Table) -> WorkerLoad:
    """Measure the workers by rows of `stages` of one loader, with `cpu_ns`. Raises as `RankRun.table` does."""
    busy = sum(row.busy_frac or 0.0 for row in sum_stages(stages) if row.name in WORKER_STAGES)
    work = stages.filter(pc.equal(stages["kind"].cast(pa.string()), "work"))
    known = work.filter(pc.is_valid(work["cpu_ns"]))
    took = pc.sum(known["duration_ns"]).as_py()
    if not took:
        return WorkerLoad(busy, None)
    host = summarize_host(rank, pc.min(known["start_ns"]).as_py(), pc.max(known["start_ns"]).as_py())
    return load_workers(busy, pc.sum(known["cpu_ns"]).as_py() / took, host)


def load_workers(busy_frac: float, cpu_frac: float | None, host: HostLoad | None) -> WorkerLoad:
    """Return the load of workers that are on a processor for `cpu_frac` of their work."""
    if cpu_frac is None or host is None or host.stretch is None:
        return WorkerLoad(busy_frac, cpu_frac)
    alone = max(cpu_frac, 1.0 - cpu_frac * (host.stretch - 1.0))
    return WorkerLoad(busy_frac, cpu_frac / alone if alone else None)


def find_bottleneck(
    readiness: Sequence[Readiness], work_ns: dict[str, float], wait_frac: float, load: WorkerLoad | None = None
) -> Bottleneck:
    """Name the stage that limits the step, by MindInsight's rules.

    `work_ns` is work per batch of each stage, `wait_frac` the share of the step spent waiting for data. The
    limiting stage has a full queue before it and an empty one after it; what stands before the first queue are the
    worker stages, of which the one with the most work is named. With the `load` of the workers it is also told what
    holds up batches that are ready.
    """
    if wait_frac < 0.05:
        return Bottleneck(None, "The step hardly waits for data: every stage keeps up.")
    workers = {stage: work_ns[stage] for stage in WORKER_STAGES if work_ns.get(stage)}
    slowest = max(workers, key=lambda stage: workers[stage]) if workers else None
    if not readiness:
        return Bottleneck(
            slowest, "There are no worker processes: each stage holds up the step for as long as it runs."
        )
    first, last = readiness[0], readiness[-1]
    if first.is_late and last.is_late:
        return Bottleneck(slowest, f"The {_say(first)} lacked the next batch: the workers are the limit.")
    if last.is_late:
        return Bottleneck("pin", f"The {_say(first)} held the next batch while the {_say(last)} lacked it.")
    if slowest is not None and load is not None and load.busy_frac >= _BUSY:
        return Bottleneck(slowest, "The workers work all the time: they are the limit.")
    if slowest is None or load is None or wait_frac < _HANDOVER_WAIT or load.busy_frac < _HANDOVER_BUSY:
        return Bottleneck(None, "The next batch was ready nearly always: what waits is not the loader.")
    return _blame_handover(slowest, load)


_HANDOVER_WAIT, _HANDOVER_BUSY, _BUSY = 0.1, 0.5, 0.95
_COMPUTING = 0.2
"""Workers that need a processor for less of their work than this wait, for storage mostly."""


def _blame_handover(slowest: str, load: WorkerLoad) -> Bottleneck:
    """Name what holds up batches that are ready, where taking them over is what the step waits for.

    A batch is handed over by the worker that made it, which may be in the middle of the next one. A stage that keeps
    the workers computing holds up batches that are done; workers that wait (for storage) do not, and then it is the
    way from process to process itself.
    """
    if load.cpu_frac is not None and load.cpu_frac < _COMPUTING:
        return Bottleneck("send", "Batches are ready, but taking one over from its worker takes long.")
    return Bottleneck(slowest, "Batches are ready, but the workers are too busy to hand them over quickly.")


def _say(queue: Readiness) -> str:
    return queue.queue.replace("_", " ")
