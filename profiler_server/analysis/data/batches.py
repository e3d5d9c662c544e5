"""The cost of each batch in the process that made it, and the way in which its samples were read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.schema.manifest import Loader
from collector.format.steps import StepSelection, read_integers
from profiler_server.analysis.data.feeding import Feed
from profiler_server.analysis.tables import choose, read_rows
from profiler_server.diagnosis.limits.data import CROWDED_RATIO, LEAST_BATCHES, STAGE_CPU_NS
from profiler_server.facts.loading import BatchTimes, Crowding, Reading
from profiler_server.facts.pipeline import WORKER_STAGES

_MOST_ROWS, _MOST_READS = 200_000, 100_000
_COLUMNS = ("kind", "replica", "loader", "epoch", "batch", "start_ns", "duration_ns", "cpu_ns", "items", "bytes")


def read_work(rank: RankRun, loader: int, columns: tuple[str, ...] = ()) -> pa.Table:
    """Read the rows of the table `stages` with work on a loader's batches. Raises TableBrokenError or NewerSchemaError."""
    wanted = (pc.field("loader") == loader) & pc.field("batch").is_valid()
    return choose(read_rows(rank, "stages", ("stage", *_COLUMNS, *columns), wanted), "kind", "work")


def cut_latest(rows: pa.Table, most: int) -> pa.Table:
    return rows.slice(max(0, rows.num_rows - most))


def number_batches(rows: pa.Table) -> Ints:
    """Return a number for each row. Rows with the same epoch and batch have the same number."""
    return (read_integers(rows, "epoch", absent=0) << 36) + read_integers(rows, "batch", absent=0)


def read_batches(rank: RankRun, loader: int) -> BatchTimes | None:
    """Return the time of each stage for each batch of a loader, from its latest 200,000 rows; None without a complete
    batch.
    """
    rows = choose(read_work(rank, loader), "stage", *WORKER_STAGES)
    return _pivot(cut_latest(rows, _MOST_ROWS)) if rows.num_rows else None


def estimate_batches(feed: Feed, selection: StepSelection, watched: Loader) -> BatchTimes | None:
    """Return the cost of making the items of an iterable that is no DataLoader, from the time in `next()`. None if the
    iterable may make items ahead, outside of `next()`.
    """
    fetched = feed.fetches[selection.regular]
    fed = fetched > 0
    if watched.reads_ahead is not False or not fed.any():
        return None
    took = feed.wait_ns[selection.regular][fed] / fetched[fed]
    cpu = None if watched.cpu_frac is None else took * min(max(watched.cpu_frac, 0.0), 1.0)
    return BatchTimes({"read": took}, took, cpu, 0.0)


def fill_in_proportion(part: Ints, whole: Floats, known: Mask, groups: Ints) -> Floats:
    """Return `part` with its unknown values estimated as a fraction of `whole`.

    Each group has its own fraction: sum(part) / sum(whole) over its known values, or 0 if it has none.
    """
    filled = np.where(known, part, 0).astype(np.float64)
    for group in np.unique(groups[~known]):
        of_group = groups == group
        told = float(whole[of_group & known].sum())
        if told > 0:
            missing = of_group & ~known
            filled[missing] = whole[missing] * (float(part[of_group & known].sum()) / told)
    return filled


def _pivot(rows: pa.Table) -> BatchTimes | None:
    batches, place = np.unique(number_batches(rows), return_inverse=True)
    stages = np.asarray(rows["stage"].cast(pa.string()).to_pylist(), dtype=object)
    codes = np.array([WORKER_STAGES.index(stage) for stage in stages])
    duration = read_integers(rows, "duration_ns").astype(np.float64)
    cpu_known = rows["cpu_ns"].is_valid().to_numpy()
    found: dict[str, Floats] = {}
    counts: dict[str, int] = {}
    for stage in WORKER_STAGES:
        mask = stages == stage
        if mask.any():
            found[stage] = np.bincount(place[mask], duration[mask], len(batches)).astype(np.float64)
            counts[stage] = len(np.unique(place[mask]))
    # A batch of which not every stage was recorded (the run ended in it) would look cheap.
    usual = [stage for stage, count in counts.items() if count > len(batches) / 2]
    whole = np.all([found[stage] > 0 for stage in usual], axis=0)
    if not whole.any():
        return None
    # Cheap samples are looked into now and then only: the batches between are like those.
    cpu_rows = fill_in_proportion(read_integers(rows, "cpu_ns", absent=0), duration, cpu_known, codes)
    cpu = np.bincount(place, cpu_rows, len(batches))
    send_cpu = np.bincount(place, cpu_rows * (stages == "send"), len(batches)).astype(np.float64)
    cpu_of = {stage: float(cpu_rows[stages == stage].sum()) for stage in found}
    total = np.sum(list(found.values()), axis=0)
    items = np.zeros(len(batches))
    np.maximum.at(items, place, read_integers(rows, "items").astype(np.float64))
    sizes = np.zeros(len(batches))
    np.maximum.at(sizes, place, read_integers(rows, "bytes", absent=0).astype(np.float64))
    return BatchTimes(
        bytes=float(sizes[whole].mean()),
        stages_ns={stage: values[whole] for stage, values in found.items()},
        total_ns=total[whole],
        cpu_ns=np.minimum(cpu, total)[whole] if cpu_known.any() else None,
        samples=float(items[whole].mean()),
        held_ns=_find_held(total, found.get("send"), send_cpu)[whole],
        stretch=_estimate_stretch(
            {stage: float(values.sum()) for stage, values in found.items()}, cpu_of, len(batches)
        ),
    )


def _find_held(total: Floats, send: Floats | None, send_cpu: Floats) -> Floats:
    """Return how long each batch occupies its worker, in ns. The worker's sending and computing threads take turns."""
    if send is None:
        return total
    return np.maximum(total - send + np.minimum(send_cpu, send), send)


def _estimate_stretch(wall_ns: Mapping[str, float], cpu_ns: Mapping[str, float], batches: int) -> float:
    """Return the ratio of wall time to processor time of pure processor work; 1 if unknown, for example with a single
    stage.

    Within a stage, waiting for storage cannot be separated from waiting for a processor. The stage that waits least,
    most often collate, hardly waits for storage. So its ratio is that of the processors.
    """
    ratios = [
        wall_ns[stage] / cpu_ns[stage]
        for stage in ("read", "transform", "collate")
        if stage in wall_ns and cpu_ns[stage] > STAGE_CPU_NS * batches
    ]
    return max(1.0, min(ratios)) if len(ratios) > 1 else 1.0


def read_reading(rank: RankRun, loader: int) -> Reading | None:
    """Return how the loader with this number reads its samples; None if this was not recorded."""
    work = read_or(None, read_work, rank, loader, ("opened", "open_ns", "longest_ns"))
    if work is None or not (rows := cut_latest(choose(work, "stage", "read"), _MOST_READS)).num_rows:
        return None
    took = read_integers(rows, "duration_ns").astype(np.float64)
    epochs = read_integers(rows, "epoch", absent=0)
    opened = rows.filter(rows["opened"].is_valid())
    first, later = took[epochs == epochs.min()], took[epochs > epochs.min()]
    compares = min(len(first), len(later)) >= LEAST_BATCHES
    return Reading(
        read_ns=float(took.mean()),
        epochs=int(epochs.max()),
        cpu_frac=_find_cpu_frac(rows),
        samples=float(read_integers(rows, "items").mean()),
        bytes=_find_mean(rows, "bytes"),
        files=_find_mean(opened, "opened"),
        open_ns=_find_mean(opened, "open_ns"),
        first_ns=float(np.median(first)) if compares else None,
        later_ns=float(np.median(later)) if compares else None,
        crowding=_compare_crowds(rows),
        # A row of inspected reads has the time of the longest sample, unless one call read them all.
        at_once=0 < opened.num_rows == opened["longest_ns"].null_count,
    )


def _find_cpu_frac(rows: pa.Table) -> float | None:
    known = rows.filter(rows["cpu_ns"].is_valid())
    whole = int(read_integers(known, "duration_ns").sum())
    return min(1.0, int(read_integers(known, "cpu_ns", absent=0).sum()) / whole) if whole else None


def _find_mean(rows: pa.Table, name: str) -> float | None:
    values = rows[name].drop_null()
    return float(values.to_numpy().mean()) if len(values) else None


def _compare_crowds(rows: pa.Table) -> Crowding | None:
    known = rows.filter(pc.greater(pc.fill_null(rows["bytes"], 0), 0))
    starts, took = read_integers(known, "start_ns"), read_integers(known, "duration_ns")
    if len(starts) < 3 * LEAST_BATCHES:
        return None
    crowd = count_beside(starts, np.maximum(took, 1))
    rate = read_integers(known, "bytes", absent=0) / np.maximum(took, 1) * 1e9
    order = np.argsort(crowd, kind="stable")
    third = len(order) // 3
    low, high = order[:third], order[-third:]
    few, many = float(crowd[low].mean()), float(crowd[high].mean())
    slow, fast = float(np.median(rate[low] * crowd[low])), float(np.median(rate[high] * crowd[high]))
    if few <= 0 or many < CROWDED_RATIO * few or slow <= 0:
        return None
    return Crowding(few, many, slow, fast)


def count_beside(starts: Ints, lengths: Ints) -> Floats:
    """Return for each interval the mean number of intervals that run at once during it, itself included."""
    ends = starts + lengths
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    steps = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])[order]
    times = times[order].astype(np.float64)
    active = np.cumsum(steps)
    passed = np.concatenate([[0.0], np.cumsum(active[:-1] * np.diff(times))])
    return np.asarray((np.interp(ends, times, passed) - np.interp(starts, times, passed)) / lengths, np.float64)
