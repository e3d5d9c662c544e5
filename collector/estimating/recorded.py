"""The batches and steps of a recorded run, as the input of an estimate."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.estimating.model import BATCH_SIZE, Measured, Observed
from collector.format.arrays import fill_in_proportion
from collector.format.intervals import Ints
from collector.format.run import RankRun, Run
from collector.format.schema.errors import TableMissingError, UsageError
from collector.format.schema.manifest import Loader
from collector.format.steps import SELECTED_COLUMNS, read_integers, select_steps, train_steps

MOST_BATCHES = 400
_READING, _COLLATING = ("read", "transform"), ("collate", "send")
_STAGES = (*_READING, *_COLLATING)
_COLUMNS = ("stage", "kind", "loader", "epoch", "batch", "duration_ns", "cpu_ns", "items", "bytes")


def read_loop(run: Run) -> Observed:
    """Read the busiest loader of the first rank. UsageError if no loader or no step was recorded."""
    rank = run.rank()
    name = run.manifest.name
    rows = _read_work(rank)
    if rows is None or not rows.num_rows:
        raise UsageError(
            f"the run {name} recorded no batch of a DataLoader, so there is nothing to estimate from; "
            "give estimate() the DataLoader itself"
        )
    number = _find_busiest(rows)
    found = next((loader for loader in rank.manifest.loaders if loader.id == number), None)
    loader = found or Loader(number, "", "map")
    measured = _sum_batches(rows.filter(pc.equal(rows["loader"], number)))
    which = f" of DataLoader {loader.id} ({loader.dataset})" if len(pc.unique(rows["loader"])) > 1 else ""
    return Observed(
        measured,
        loader,
        loader.batch_size or measured.batch_size or BATCH_SIZE,
        _mean_step(run, rank),
        float(rank.manifest.usable_cores or 1.0),
        f"as recorded in {name}{which}, with its steps and its cores",
    )


def _read_work(rank: RankRun) -> pa.Table | None:
    try:
        rows = rank.table("stages", _COLUMNS, pc.field("loader").is_valid() & pc.field("batch").is_valid())
    except TableMissingError:
        return None
    stages = pa.array(_STAGES, pa.string())
    wanted = pc.and_(
        pc.equal(rows["kind"].cast(pa.string()), "work"), pc.is_in(rows["stage"].cast(pa.string()), stages)
    )
    return rows.filter(wanted)


def _find_busiest(rows: pa.Table) -> int:
    sums = rows.group_by("loader", use_threads=False).aggregate([("duration_ns", "sum")]).to_pylist()
    return int(max(sums, key=lambda row: row["duration_ns_sum"])["loader"])


def _sum_batches(rows: pa.Table) -> Measured:
    key = (read_integers(rows, "epoch", absent=0) << 36) + read_integers(rows, "batch", absent=0)
    batches, place = np.unique(key, return_inverse=True)
    duration = read_integers(rows, "duration_ns")
    known = pc.is_valid(rows["cpu_ns"]).to_numpy()
    stage = rows["stage"].cast(pa.string())
    # A stage of which nobody said how much was on a processor is taken for work on one.
    codes = np.array([_STAGES.index(name) for name in stage.to_pylist()])
    counted = np.minimum(read_integers(rows, "cpu_ns", absent=0), duration)
    cpu = fill_in_proportion(counted, duration, known, codes, unknown_frac=1.0).astype(np.int64)

    def add(names: tuple[str, ...], values: Ints) -> tuple[int, ...]:
        of_stage = pc.is_in(stage, pa.array(names, pa.string())).to_numpy()
        summed = np.bincount(place[of_stage], values[of_stage], len(batches))[-MOST_BATCHES:]
        return tuple(int(value) for value in summed)

    sizes = np.zeros(len(batches), np.int64)
    np.maximum.at(sizes, place, read_integers(rows, "bytes", absent=0))
    items = int(read_integers(rows, "items").max(initial=0))
    read, read_cpu = (add(_READING, values) for values in (duration, cpu))
    collate, collate_cpu = (add(_COLLATING, values) for values in (duration, cpu))
    return Measured(items, read, read_cpu, collate, collate_cpu, int(sizes.max(initial=0)))


def _mean_step(run: Run, rank: RankRun) -> int:
    try:
        steps = rank.table("steps", (*SELECTED_COLUMNS, "data_wait_ns"))
    except TableMissingError:
        steps = None
    kept = None if steps is None else train_steps(steps).filter(pa.array(select_steps(steps).kept))
    if kept is None or not kept.num_rows:
        raise UsageError(f"the run {run.manifest.name} has no training step; give estimate() the DataLoader itself")
    own = read_integers(kept, "duration_ns") - read_integers(kept, "data_wait_ns")
    return round(float(own.mean()))
