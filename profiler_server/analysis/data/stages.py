"""The work of the data pipeline's stages: of the loaders that feed the steps, and of the user's own stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import EMPTY, Intervals, unite
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.steps import SELECTED_COLUMNS, count_as_steps, read_integers, select_steps, train_steps
from profiler_server.analysis.data.feeding import find_feeding_loaders, find_most_used
from profiler_server.analysis.data.replicas import order_stages
from profiler_server.analysis.tables import choose, find_rows, read_rows
from profiler_server.facts.machine import HostLoad
from profiler_server.facts.pipeline import OwnStage, StageSummary, WorkerLoad

_STAGE_COLUMNS = ("stage", "replica", "kind", "loader", "epoch", "batch", "start_ns", "duration_ns")


def summarize_stages(rank: RankRun) -> tuple[StageSummary, ...]:
    """Return one row per stage: the stages of the loaders that feed the steps, then the user's own stages.

    The loader with the longest wait comes first, and the stages of a loader are in pipeline order. `mean_ns` is the
    work per batch. The shares are of the wall time of the replicas that ran the stage. If the training process runs the
    stage itself, they are shares of the steps. A worker runs its stages one after the other, so their busy shares add
    up within the worker. A share is None if its kind of time was never recorded for the stage.
    """
    stages = read_rows(rank, "stages", _STAGE_COLUMNS)
    main = find_loader(rank)
    if main is None:
        return sum_stages(stages)
    found: list[StageSummary] = []
    steps = read_counted_steps(rank)
    for loader in dict.fromkeys((main, *find_feeding_loaders(rank))):
        mine = stages.filter(pc.equal(stages["loader"], loader))
        rows = sum_stages(mine) if steps is None else share_steps(sum_stages(mine), mine, steps)
        found += [replace(row, loader=loader) for row in rows]
    return (*found, *sum_stages(select_own(stages)))


def read_counted_steps(rank: RankRun) -> pa.Table | None:
    """Read the columns of the steps that `share_steps` needs; None if they cannot be read."""
    steps = read_or(None, rank.table, "steps", SELECTED_COLUMNS)
    return None if steps is None else count_as_steps(steps).steps


def find_loader(rank: RankRun) -> int | None:
    """Return the loader for which the steps waited longest; None if there is none or it is not known.

    Without steps, return the loader with the most fetched batches, or else the loader with the most batches in an
    epoch.
    """
    feeding = find_feeding_loaders(rank)
    return feeding[0] if feeding else _guess_loader(rank)


def _guess_loader(rank: RankRun) -> int | None:
    used = find_most_used(find_rows(rank, "fetches", ("loader",)))
    if used is not None:
        return used
    largest = max(rank.manifest.loaders, key=lambda loader: loader.length_batches or 0, default=None)
    return None if largest is None else largest.id


def sum_stages(stages: pa.Table) -> tuple[StageSummary, ...]:
    """Summarise these rows of the table `stages`, as `summarize_stages` does for a whole rank."""
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
    """Return the stages. If the training process runs a stage itself, its work is given as a share of the steady steps.

    The wait for data contains this work, and is given as a share of the same steps. `rows` are the rows that
    `stages` sums.
    """
    train, selection = train_steps(steps), select_steps(steps)
    starts, kept = read_integers(train, "start_ns"), selection.kept
    whole_ns = int(selection.duration_ns[kept].sum())
    if not whole_ns:
        return stages
    work = choose(rows, "kind", "work")
    work = work.filter(pc.and_(pc.less(work["replica"], 0), pc.is_valid(work["loader"])))
    begins = read_integers(work, "start_ns")
    at = np.maximum(np.searchsorted(starts, begins, side="right") - 1, 0)
    inside = (begins >= starts[at]) & (begins < starts[at] + selection.duration_ns[at]) & kept[at]
    names, lengths = np.array(work["stage"].cast(pa.string()).to_pylist(), object), read_integers(work, "duration_ns")
    sums = {name: int(lengths[inside & (names == name)].sum()) for name in set(names.tolist())}
    return tuple(replace(row, busy_frac=sums[row.name] / whole_ns) if row.name in sums else row for row in stages)


_SHARES = ("work", "input_wait", "output_wait")


def _sum_walls(stages: pa.Table) -> dict[str, tuple[int, int, dict[str, int]]]:
    """Return for each stage: the wall time of its replicas, their number, and the sum of each kind of time.

    A replica is one worker in one epoch, because workers that are not persistent restart for each epoch. A user's stage
    has its own replicas, which run nothing else.
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
    """Return how many batches each stage worked on. A batch with several rows counts once."""
    work = choose(stages, "kind", "work")
    # Each replica of a user's stage numbers its own items.
    own = pc.if_else(pc.is_null(work["loader"]), work["replica"], -1)
    keys = ["stage", "loader", "epoch", "batch", "own"]
    grouped = work.append_column("own", own).group_by(keys, use_threads=False).aggregate([])
    counts = grouped.group_by("stage", use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return {row["stage"]: row["count_all"] for row in counts}


def load_workers(busy_frac: float, cpu_frac: float | None, host: HostLoad | None) -> WorkerLoad:
    """Return the load of workers. `cpu_frac` is the share of their work for which they are on a processor.

    If the host was sampled, `cpu_frac` is raised: time that the work waited for a processor then counts as processor
    time.
    """
    queued_frac = host.queued_frac or 0.0 if host is not None else 0.0
    if cpu_frac is None or host is None or host.stretch is None:
        return WorkerLoad(busy_frac, cpu_frac, queued_frac)
    alone = max(cpu_frac, 1.0 - cpu_frac * (host.stretch - 1.0))
    return WorkerLoad(busy_frac, cpu_frac / alone if alone else None, queued_frac)


def select_own(stages: pa.Table) -> pa.Table:
    """Return the rows of the user's own stages: rows without a DataLoader."""
    return stages.filter(pc.is_null(stages["loader"]))


def summarize_own(own: pa.Table, waits: Intervals = EMPTY) -> tuple[OwnStage, ...]:
    """Return the user's stages in pipeline order, then sorted by their start. `waits` are the steps' waits for data."""
    if not own.num_rows:
        return ()
    ends = {kind: _find_queues(own, kind) for kind in ("input_wait", "output_wait")}
    found = [
        OwnStage(
            row,
            ends["input_wait"].get(row.name, ()),
            ends["output_wait"].get(row.name, ()),
            _share_waits(own, row.name, waits),
        )
        for row in sum_stages(own)
    ]
    starts = own.group_by("stage", use_threads=False).aggregate([("start_ns", "min")]).to_pylist()
    began = {row["stage"]: row["start_ns_min"] for row in starts}
    places = _place(found)
    return tuple(sorted(found, key=lambda stage: (places[stage.name], began[stage.name])))


def read_own(rank: RankRun) -> tuple[OwnStage, ...]:
    """Read the user's stages, with the share of the steps' wait for data in each. Raises TableBrokenError or
    NewerSchemaError."""
    own = select_own(read_rows(rank, "stages", (*_STAGE_COLUMNS, "detail")))
    if not own.num_rows:
        return ()
    waits = choose(read_rows(rank, "phases", ("phase", "start_ns", "duration_ns")), "phase", "data_wait")
    return summarize_own(own, _unite(waits))


def _share_waits(own: pa.Table, stage: str, waits: Intervals) -> float:
    work = choose(choose(own, "stage", stage), "kind", "work")
    return (_unite(work) & waits).length_ns / waits.length_ns if waits.length_ns else 0.0


def _unite(rows: pa.Table) -> Intervals:
    starts = read_integers(rows, "start_ns")
    return unite(starts, starts + read_integers(rows, "duration_ns"))


def _find_queues(own: pa.Table, kind: str) -> dict[str, tuple[str, ...]]:
    rows = choose(own, "kind", kind)
    pairs = (
        rows.filter(pc.is_valid(rows["detail"]))
        .group_by(["stage", "detail"], use_threads=False)
        .aggregate([])
        .to_pylist()
    )
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair["stage"], []).append(pair["detail"])
    return {stage: tuple(sorted(queues)) for stage, queues in found.items()}


def _place(stages: Sequence[OwnStage]) -> dict[str, int]:
    """Return for each stage the number of stages that an item passes before it, at most the number of stages."""
    places = dict.fromkeys((stage.name for stage in stages), 0)
    for _ in stages:
        for stage in stages:
            above = [other for other in stages if other is not stage and set(other.outputs) & set(stage.inputs)]
            places[stage.name] = min(max((places[other.name] + 1 for other in above), default=0), len(stages))
    return places
