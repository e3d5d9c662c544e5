"""The work of the data pipeline by worker, by stage and kind of time, and by transform; and the slowest samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.words import STAGES
from profiler_server.analysis.tables import choose, read_rows

KINDS = ("work", "input_wait", "output_wait", "setup", "cleanup")
_MOST_SLOW = 10

_COLUMNS = (
    *("stage", "replica", "kind", "detail", "loader", "epoch", "batch"),
    *("start_ns", "duration_ns", "cpu_ns", "items", "bytes", "longest_ns", "longest_item"),
)


@dataclass(frozen=True)
class ReplicaTimes:
    """The times of one worker, whose number is `replica`, or of the training process (-1), as totals over the rows that
    were given. `other_ns` is the part of the wall time that no row covers.

    `send_ns` is not included in the wall time: a separate thread of the worker sends a batch while the worker makes
    the next one.
    """

    replica: int
    batches: int
    work_ns: int
    input_wait_ns: int
    output_wait_ns: int
    setup_ns: int
    other_ns: int
    wall_ns: int
    send_ns: int = 0


@dataclass(frozen=True)
class StageTotals:
    """The totals of one stage over the rows that were given. `replicas` is the number of workers that ran it,
    `items` the number of samples. `cpu_frac` is the share of its work on a processor, None if not measured. The rest
    of the work was waiting. `bytes` is None if no size was recorded.
    """

    stage: str
    replicas: int
    batches: int
    items: int
    bytes: int | None
    work_ns: int
    input_wait_ns: int
    output_wait_ns: int
    setup_ns: int
    cleanup_ns: int
    cpu_frac: float | None


@dataclass(frozen=True)
class TransformTimes:
    """One transform by name, with totals over the rows that were given. `share_frac` is its share of the work of all
    transforms, `longest_ns` its longest time for one item. Figures that were not measured are None.
    """

    name: str
    items: int
    work_ns: int
    share_frac: float
    cpu_frac: float | None
    longest_ns: int | None


@dataclass(frozen=True)
class SlowItem:
    """The slowest item of a row of work, with the row's times. `item` is its index in the dataset. Unknown numbers are
    None.
    """

    stage: str
    detail: str
    replica: int
    epoch: int | None
    batch: int | None
    item: int | None
    longest_ns: int
    start_ns: int
    end_ns: int


def read_stages(rank: RankRun, loader: int | None) -> pa.Table:
    """Read the rows of one loader and of the user's own stages, or all rows if `loader` is None.

    Raises TableBrokenError or NewerSchemaError.
    """
    stages = read_rows(rank, "stages", _COLUMNS)
    if loader is None:
        return stages
    return stages.filter(pc.fill_null(pc.equal(stages["loader"], loader), True))


def summarize_replicas(stages: pa.Table) -> tuple[ReplicaTimes, ...]:
    """Return the times of each process that loaded data, workers first.

    The wall time of a worker is from its first row of an epoch to its last, summed over epochs. Rows of `step` are
    training, not loading.
    """
    loading = stages.filter(pc.not_equal(stages["stage"], "step"))
    columns = {"end_ns": pc.add(loading["start_ns"], loading["duration_ns"]), "whole_batch": _number_batches(loading)}
    spans = _append(loading, columns)
    walls = _sum_walls(spans)
    beside = pc.and_(pc.equal(loading["stage"], "send"), pc.is_valid(loading["loader"]))
    times = _sum_kinds(loading.filter(pc.invert(beside)), "replica")
    sent = _sum_kinds(loading.filter(beside), "replica")
    rows = []
    for span in spans.group_by("replica", use_threads=False).aggregate([("whole_batch", "count_distinct")]).to_pylist():
        kinds = times.get(span["replica"], dict.fromkeys(KINDS, 0))
        send_ns = sum(sent.get(span["replica"], {}).values())
        wall = walls[span["replica"]]
        other = max(0, wall - sum(kinds.values()))
        parts = (kinds["work"], kinds["input_wait"], kinds["output_wait"], kinds["setup"] + kinds["cleanup"])
        rows.append(ReplicaTimes(span["replica"], span["whole_batch_count_distinct"], *parts, other, wall, send_ns))
    return tuple(sorted(rows, key=lambda row: (row.replica < 0, row.replica)))


def _sum_walls(spans: pa.Table) -> dict[int, int]:
    grouped = spans.group_by(["replica", "loader", "epoch"], use_threads=False)
    walls: dict[int, int] = {}
    for row in grouped.aggregate([("start_ns", "min"), ("end_ns", "max")]).to_pylist():
        walls[row["replica"]] = walls.get(row["replica"], 0) + row["end_ns_max"] - row["start_ns_min"]
    return walls


def summarize_totals(stages: pa.Table) -> tuple[StageTotals, ...]:
    """Return the totals of each stage, in pipeline order."""
    times = _sum_kinds(stages, "stage")
    work = _measure(choose(stages, "kind", "work"), "stage")
    counted = stages.group_by("stage", use_threads=False).aggregate([("replica", "count_distinct")]).to_pylist()
    replicas = {row["stage"]: row["replica_count_distinct"] for row in counted}
    items = _count_items(stages)
    rows = []
    for stage in order_stages(list(replicas)):
        done = work.get(stage, _Work())
        counts = replicas[stage], done.batches, items.get(stage, 0), done.bytes
        kinds = {f"{kind}_ns": times[stage][kind] for kind in KINDS}
        rows.append(StageTotals(stage, *counts, **kinds, cpu_frac=done.cpu_frac))
    return tuple(rows)


def _count_items(stages: pa.Table) -> dict[str, int]:
    """Return the number of samples that passed each stage. A sample that passed five transforms of a loader counts
    once.
    """
    named = (
        choose(stages, "kind", "work")
        .group_by(["stage", "loader", "detail"], use_threads=False)
        .aggregate([("items", "sum")])
    )
    passed = named.group_by(["stage", "loader"], use_threads=False).aggregate([("items_sum", "max")])
    counts = passed.group_by("stage", use_threads=False).aggregate([("items_sum_max", "sum")]).to_pylist()
    return {row["stage"]: row["items_sum_max_sum"] for row in counts}


def summarize_transforms(stages: pa.Table) -> tuple[TransformTimes, ...]:
    """Return the named transforms of the run, the longest first; empty without names."""
    work = choose(choose(stages, "stage", "transform"), "kind", "work")
    measured = _measure(work.filter(pc.fill_null(pc.not_equal(work["detail"].cast(pa.string()), ""), False)), "detail")
    whole = sum(done.work_ns for done in measured.values()) or 1
    rows = (
        TransformTimes(name, done.items, done.work_ns, done.work_ns / whole, done.cpu_frac, done.longest_ns)
        for name, done in measured.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.work_ns, row.name)))


def find_slow_items(stages: pa.Table) -> tuple[SlowItem, ...]:
    """Return the slowest single items, the slowest first. An item that is slow in several stages is listed once.

    The time of an item in a `read` row includes its transforms. If one transform took at least half of this time, it is
    given as the stage in place of `read`.
    """
    timed = stages.filter(pc.greater(stages["longest_ns"], 0)).sort_by([("longest_ns", "descending")])
    slowest = timed.slice(0, 8 * _MOST_SLOW)
    transforms = _find_transforms(timed, slowest)
    found: dict[object, SlowItem] = {}
    for place, row in enumerate(slowest.to_pylist()):
        item = row["longest_item"] if (row["longest_item"] or 0) >= 0 else None
        known = _identify(row)
        took = transforms.get(known) if row["stage"] == "read" and item is not None else None
        blamed = took if took is not None and 2 * took["longest_ns"] >= row["longest_ns"] else row
        slow = SlowItem(
            stage=blamed["stage"],
            detail=blamed["detail"] or "",
            replica=row["replica"],
            epoch=row["epoch"],
            batch=row["batch"],
            item=item,
            longest_ns=row["longest_ns"],
            start_ns=row["start_ns"],
            end_ns=blamed["start_ns"] + blamed["duration_ns"],
        )
        found.setdefault(known if item is not None else place, slow)
    return tuple(found.values())[:_MOST_SLOW]


def _find_transforms(timed: pa.Table, slowest: pa.Table) -> dict[tuple[object, ...], dict[str, Any]]:
    near = pc.and_(pc.equal(timed["stage"], "transform"), pc.is_in(timed["batch"], slowest["batch"].combine_chunks()))
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in timed.filter(near).to_pylist():
        found.setdefault(_identify(row), row)
    return found


def _identify(row: dict[str, Any]) -> tuple[object, ...]:
    return row["loader"], row["epoch"], row["batch"], row["longest_item"]


def order_stages(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in pipeline order, followed by the user's own stages in their given order."""
    known = [name for name in STAGES if name in names]
    return (*known, *(name for name in names if name not in STAGES))


@dataclass(frozen=True)
class _Work:
    batches: int = 0
    items: int = 0
    bytes: int | None = None
    work_ns: int = 0
    cpu_frac: float | None = None
    longest_ns: int | None = None


def _measure(work: pa.Table, key: str) -> dict[str, _Work]:
    """Sum rows of work by column `key`. The processor share covers only rows with a measured processor time."""
    known = pc.if_else(pc.is_valid(work["cpu_ns"]), work["duration_ns"], None)
    work = _append(work, {"known_ns": known, "whole_batch": _number_batches(work)})
    sums = [(name, "sum") for name in ("duration_ns", "cpu_ns", "known_ns", "items", "bytes")]
    grouped = work.group_by(key, use_threads=False).aggregate(
        [*sums, ("longest_ns", "max"), ("whole_batch", "count_distinct")]
    )
    return {
        row[key]: _Work(
            batches=row["whole_batch_count_distinct"],
            items=row["items_sum"],
            bytes=row["bytes_sum"],
            work_ns=row["duration_ns_sum"],
            cpu_frac=row["cpu_ns_sum"] / row["known_ns_sum"] if row["known_ns_sum"] else None,
            longest_ns=row["longest_ns_max"],
        )
        for row in grouped.to_pylist()
    }


def _sum_kinds(stages: pa.Table, key: str) -> dict[str | int, dict[str, int]]:
    sums = stages.group_by([key, "kind"], use_threads=False).aggregate([("duration_ns", "sum")]).to_pylist()
    times: dict[str | int, dict[str, int]] = {}
    for row in sums:
        times.setdefault(row[key], dict.fromkeys(KINDS, 0))[row["kind"]] = row["duration_ns_sum"]
    return times


def _number_batches(stages: pa.Table) -> pa.ChunkedArray:
    """Return one number per batch, null for no batch. A batch is identified by loader, epoch and index in the epoch.

    Replicas of a user's stage number their items independently, so the replica takes the place of the epoch.
    """
    own = pc.add(stages["replica"].cast(pa.int64()), 1)
    epoch = pc.if_else(pc.is_valid(stages["loader"]), pc.fill_null(stages["epoch"].cast(pa.int64()), 0), own)
    loader = pc.fill_null(stages["loader"].cast(pa.int64()), -1)
    return pc.add(pc.add(pc.multiply(loader, 1 << 56), pc.multiply(epoch, 1 << 36)), stages["batch"])


def _append(table: pa.Table, columns: dict[str, pa.ChunkedArray]) -> pa.Table:
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table
