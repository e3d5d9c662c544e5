"""How a loader reads: files, bytes and time of each batch, in its first epoch and later, by few workers and by many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import read_integers
from profiler_server.diagnosis.limits.data import CROWDED_RATIO, LEAST_BATCHES
from profiler_server.facts.loading import Crowding, Reading

_MOST_ROWS = 100_000
_NAMES = (
    "stage",
    "kind",
    "loader",
    "epoch",
    "start_ns",
    "duration_ns",
    "cpu_ns",
    "items",
    "bytes",
    "opened",
    "open_ns",
)


def read_reading(rank: RankRun, loader: int) -> Reading | None:
    """Measure how a loader reads, None where that was not recorded."""
    try:
        rows = _read_rows(rank, loader)
    except RunError:
        return None
    if rows is None or not rows.num_rows:
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
    )


def _read_rows(rank: RankRun, loader: int) -> pa.Table | None:
    if not find_files(rank.folder, "stages"):
        return None
    rows = rank.table("stages", _NAMES, (pc.field("loader") == loader) & pc.field("batch").is_valid())
    is_read = pc.and_(
        pc.equal(rows["stage"].cast(pa.string()), "read"), pc.equal(rows["kind"].cast(pa.string()), "work")
    )
    rows = rows.filter(is_read)
    return rows.slice(max(0, rows.num_rows - _MOST_ROWS))


def _find_cpu_frac(rows: pa.Table) -> float | None:
    known = rows.filter(rows["cpu_ns"].is_valid())
    whole = int(read_integers(known, "duration_ns").sum())
    return min(1.0, int(read_integers(known, "cpu_ns", absent=0).sum()) / whole) if whole else None


def _find_mean(rows: pa.Table, name: str) -> float | None:
    values = rows[name].drop_null()
    return float(values.to_numpy().mean()) if len(values) else None


def _compare_crowds(rows: pa.Table) -> Crowding | None:
    """Compare how fast few workers read at once with how fast many do; None where their number hardly varied."""
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
    """Return how many of the intervals ran at once during each of them, on average; itself included."""
    ends = starts + lengths
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    steps = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])[order]
    times = times[order].astype(np.float64)
    active = np.cumsum(steps)
    passed = np.concatenate([[0.0], np.cumsum(active[:-1] * np.diff(times))])
    return np.asarray((np.interp(ends, times, passed) - np.interp(starts, times, passed)) / lengths, np.float64)
