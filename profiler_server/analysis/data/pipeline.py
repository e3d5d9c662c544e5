"""The data pipeline: how full its queues were, and what its stages did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.evaluation import count_as_steps
from collector.format.intervals import Ints, Mask
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import SELECTED_COLUMNS, read_integers, select_steps, train_steps
from collector.format.words import QUEUES
from profiler_server.analysis.data.depths import read_queues
from profiler_server.analysis.data.feeding import find_feeding_loaders
from profiler_server.analysis.data.replicas import order_stages
from profiler_server.diagnosis.limits.data import LATE_NS, LATE_RATIO
from profiler_server.facts.loading import Readiness
from profiler_server.facts.machine import HostLoad
from profiler_server.facts.pipeline import Making, QueueSummary, StageSummary, WorkerLoad

_STAGE_COLUMNS = ("stage", "replica", "kind", "loader", "epoch", "batch", "start_ns", "duration_ns")


def summarize_queues(rank: RankRun) -> tuple[QueueSummary, ...]:
    """Return one row per queue, in the order in which a batch passes them; empty if none were sampled.

    Where several DataLoaders have a queue of one name, each name ends in the number of its loader.
    """
    return sum_queues(read_queues(rank))


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
    return QUEUES.index(name) if name in QUEUES else len(QUEUES)


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
        waits = _find_waits(steps, read_integers(rows, "step")) if steps is not None else None
        ready = _find_ready(rows, waits)
        # Batches that lie in the queue while the next one is missing wait for it.
        unseen = ~rows["next_ready"].is_valid().to_numpy() & (read_integers(rows, "depth") > 0)
        held_up = ~ready & ((read_integers(rows, "out_of_order", absent=0) > 0) | unseen)
        late = _share_wait(steps, read_integers(rows, "step")[~ready]) if steps is not None else 0.0
        found.append(Readiness(name, len(ready), float(1 - ready.mean()), float(held_up.mean()), late))
    return tuple(found)


def _find_ready(rows: pa.Table, waits: Ints | None) -> Mask:
    """Say of each request whether its batch was ready.

    Where that was not seen, a queue that is not empty may hold only later batches: then the wait tells, which is much
    longer than for a batch that was ready.
    """
    known = rows["next_ready"].is_valid().to_numpy()
    ready = np.asarray(pc.fill_null(rows["next_ready"], pc.greater(rows["depth"], 0)).to_numpy(), dtype=np.bool_)
    if waits is None or known.all() or not ready[known].any():
        return ready
    usual_ns = float(np.median(waits[known & ready]))
    in_time = waits <= LATE_RATIO * usual_ns + LATE_NS
    return np.asarray(ready & (known | in_time), dtype=np.bool_)


def _find_waits(steps: pa.Table, numbers: Ints) -> Ints:
    """Return the wait for data of each of these steps, 0 for one that is not there."""
    known, waits = read_integers(steps, "step"), read_integers(steps, "data_wait_ns")
    if not len(known):
        return np.zeros(len(numbers), np.int64)
    order = np.argsort(known, kind="stable")
    at = order[np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)]
    return np.where(known[at] == numbers, waits[at], 0)


def _share_wait(steps: pa.Table, chosen: Ints) -> float:
    """Return the share of the wait for data that the chosen steps have."""
    waits = read_integers(steps, "data_wait_ns")
    whole = float(waits.sum())
    return float(waits[np.isin(read_integers(steps, "step"), chosen)].sum()) / whole if whole else 0.0


def summarize_stages(rank: RankRun) -> tuple[StageSummary, ...]:
    """Return one row per stage of each loader that feeds the steps, first of the one that they wait for longest, then
    the user's own stages; each in pipeline order, empty if none were recorded.

    `mean_ns` is work per batch. The shares are of the wall time of the replicas that ran the stage, of what the training
    process runs itself of its steps; a worker runs its stages one after the other, so their busy shares add up within it. A share is None where that kind of time was
    never recorded for the stage.
    """
    if not find_files(rank.folder, "stages"):
        return ()
    stages = rank.table("stages", _STAGE_COLUMNS)
    main = find_loader(rank)
    if main is None:
        return sum_stages(stages)
    found: list[StageSummary] = []
    steps = read_counted_steps(rank)
    for loader in dict.fromkeys((main, *find_feeding_loaders(rank))):
        mine = stages.filter(pc.equal(stages["loader"], loader))
        rows = sum_stages(mine) if steps is None else share_steps(sum_stages(mine), mine, steps)
        found += [replace(row, loader=loader) for row in rows]
    return (*found, *sum_stages(stages.filter(pc.is_null(stages["loader"]))))


def read_counted_steps(rank: RankRun) -> pa.Table | None:
    """Read what `share_steps` needs of the steps; None where they cannot be read."""
    try:
        return count_as_steps(rank.table("steps", (*SELECTED_COLUMNS, "start_ns"))).steps
    except RunError:
        return None


def find_loader(rank: RankRun) -> int | None:
    """Return the loader that the steps wait for longest, None if there is none or no telling.

    Without steps it is the loader that most batches were fetched from, or else the one that says most of itself.
    """
    feeding = find_feeding_loaders(rank)
    return feeding[0] if feeding else _guess_loader(rank)


def _guess_loader(rank: RankRun) -> int | None:
    try:
        found = _find_most_used(rank.table("fetches", ("loader",)))
    except RunError:
        found = None
    if found is not None:
        return found
    largest = max(rank.manifest.loaders, key=lambda loader: loader.length_batches or 0, default=None)
    return None if largest is None else largest.id


def _find_most_used(rows: pa.Table) -> int | None:
    used = rows["loader"].drop_null()
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
        work_frac, input_frac, output_frac = (
            kinds[kind] / wall_ns if kind in kinds and wall_ns else None for kind in _SHARES
        )
        mean_ns = kinds.get("work", 0) / batches if batches else 0.0
        rows.append(StageSummary(stage, replicas, batches, mean_ns, work_frac, input_frac, output_frac))
    return tuple(rows)


def share_steps(stages: tuple[StageSummary, ...], rows: pa.Table, steps: pa.Table) -> tuple[StageSummary, ...]:
    """Return the stages with the work of those that the training process runs itself as shares of the averaged steps.

    The wait for data, which holds that work, is a share of these steps too. `rows` are those that were summed.
    """
    train, selection = train_steps(steps), select_steps(steps)
    starts, kept = read_integers(train, "start_ns"), selection.kept
    whole_ns = int(selection.duration_ns[kept].sum())
    if not whole_ns:
        return stages
    work = rows.filter(pc.equal(rows["kind"].cast(pa.string()), "work"))
    work = work.filter(pc.and_(pc.less(work["replica"], 0), pc.is_valid(work["loader"])))
    begins = read_integers(work, "start_ns")
    at = np.maximum(np.searchsorted(starts, begins, side="right") - 1, 0)
    inside = (begins >= starts[at]) & (begins < starts[at] + selection.duration_ns[at]) & kept[at]
    names, lengths = np.array(work["stage"].cast(pa.string()).to_pylist(), object), read_integers(work, "duration_ns")
    sums = {name: int(lengths[inside & (names == name)].sum()) for name in set(names.tolist())}
    return tuple(replace(row, busy_frac=sums[row.name] / whole_ns) if row.name in sums else row for row in stages)


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


def load_workers(
    busy_frac: float, cpu_frac: float | None, host: HostLoad | None, making: Making | None = None
) -> WorkerLoad:
    """Return the load of workers that are on a processor for `cpu_frac` of their work."""
    queued_frac = host.queued_frac or 0.0 if host is not None else 0.0
    if cpu_frac is None or host is None or host.stretch is None:
        return WorkerLoad(busy_frac, cpu_frac, queued_frac, making)
    alone = max(cpu_frac, 1.0 - cpu_frac * (host.stretch - 1.0))
    return WorkerLoad(busy_frac, cpu_frac / alone if alone else None, queued_frac, making)
