"""Each fetch of the training thread beside the work on its batch: whether it was made, and how long taking it over took.

The training thread opens the memory of a batch, which a thread of the worker hands to it. While that worker computes the
next batch in Python, the thread waits for the interpreter, so the two cases are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints, Mask
from collector.format.parts import find_files, read_files
from collector.format.run import RankRun
from collector.format.steps import read_integers
from profiler_server.diagnosis.limits.data import FEW_FETCHES, LEAST_FETCHES, RECEIVED_FETCHES, SOON_NS
from profiler_server.facts.loading import Receiving
from profiler_server.facts.pipeline import Making, OwnMaking

_FETCH_COLUMNS = ("loader", "epoch", "batch", "start_ns", "duration_ns")
_STAGE_COLUMNS = ("kind", "replica", "loader", "epoch", "batch", "start_ns", "duration_ns")


def read_making(rank: RankRun, loader: int) -> Making | None:
    """Compare the fetches of a loader with the work of its workers, None where too few can be matched.

    Raises TableBrokenError or NewerSchemaError.
    """
    return compare_fetches(rank, _read_stages(rank, loader))


def read_own_making(rank: RankRun, loader: int) -> OwnMaking | None:
    """The same for a loader without workers. Raises TableBrokenError or NewerSchemaError."""
    return compare_own_fetches(rank, _read_stages(rank, loader))


def _read_stages(rank: RankRun, loader: int) -> pa.Table:
    if not find_files(rank.folder, "stages"):
        return read_files((), "stages", _STAGE_COLUMNS)
    return rank.table("stages", _STAGE_COLUMNS, pc.field("loader") == loader)


def compare_fetches(rank: RankRun, stages: pa.Table) -> Making | None:
    """Do the same with rows of `stages` of one loader."""
    work = _keep_work(stages, pc.greater_equal(stages["replica"], 0))
    fetches = _read_fetches(rank, work)
    made_ns, known = _find_ends(work, _number_batches(fetches))
    if int(known.sum()) < LEAST_FETCHES:
        return None
    asked, wait = read_integers(fetches, "start_ns")[known], read_integers(fetches, "duration_ns")[known]
    unmade = np.clip(made_ns[known] - asked, 0, np.maximum(wait, 0))
    whole = float(np.maximum(wait, 0).sum())
    return Making(float((unmade == 0).mean()), float(unmade.sum()) / whole if whole else 0.0)


def compare_own_fetches(rank: RankRun, stages: pa.Table) -> OwnMaking | None:
    """Compare the fetches with the work on the same batches in the training process, None where too few can be matched."""
    work = _keep_work(stages, pc.less(stages["replica"], 0))
    fetches = _read_fetches(rank, work)
    batches, place = np.unique(_number_batches(work), return_inverse=True)
    took = np.bincount(place, read_integers(work, "duration_ns"), len(batches))
    numbers = _number_batches(fetches)
    if int(np.isin(numbers, batches).sum()) < LEAST_FETCHES:
        return None
    waited = read_integers(fetches, "duration_ns")[np.isin(numbers, batches)]
    return OwnMaking(float(waited.mean()), float(took[np.isin(batches, numbers)].mean()))


def _keep_work(stages: pa.Table, by: pa.ChunkedArray) -> pa.Table:
    is_work = pc.equal(stages["kind"].cast(pa.string()), "work")
    return stages.filter(pc.and_(pc.and_(is_work, by), pc.is_valid(stages["batch"])))


def _read_fetches(rank: RankRun, work: pa.Table) -> pa.Table:
    """Return the fetches of the loader that did this work, none where that is not one loader.

    The first request of an epoch waits for the workers to start, and no stage is to blame for that: it is left out.
    """
    loaders = work["loader"].drop_null().unique()
    if len(loaders) != 1 or not find_files(rank.folder, "fetches"):
        return read_files((), "fetches", _FETCH_COLUMNS)
    return rank.table("fetches", _FETCH_COLUMNS, (pc.field("loader") == loaders[0]) & (pc.field("batch") > 0))


def _number_batches(rows: pa.Table) -> Ints:
    return (read_integers(rows, "epoch", absent=0) << 36) + read_integers(rows, "batch", absent=0)


def _find_ends(work: pa.Table, wanted: Ints) -> tuple[Ints, Mask]:
    """Return when the work on each of these batches ended, and for which of them any was recorded."""
    batches, place = np.unique(_number_batches(work), return_inverse=True)
    if not len(batches):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    ends = np.full(len(batches), np.iinfo(np.int64).min)
    np.maximum.at(ends, place, read_integers(work, "start_ns") + read_integers(work, "duration_ns"))
    at = np.minimum(np.searchsorted(batches, wanted), len(batches) - 1)
    return ends[at], batches[at] == wanted


_MOST_ROWS = 100_000
_WORKER_BITS = 52
_ROUNDS = 30
_RECEIVED_COLUMNS = ("stage", "kind", "replica", "loader", "epoch", "batch", "start_ns", "duration_ns")


def read_receiving(rank: RankRun, loader: int) -> Receiving | None:
    """Read what taking over cost in the latest batches, None where too few were seen.

    Raises TableBrokenError or NewerSchemaError.
    """
    if not (find_files(rank.folder, "stages") and find_files(rank.folder, "fetches")):
        return None
    of_loader = pc.field("loader") == loader
    stages = rank.table(
        "stages", _RECEIVED_COLUMNS, of_loader & (pc.field("replica") >= 0) & pc.field("batch").is_valid()
    )
    stages = stages.filter(pc.equal(stages["kind"].cast(pa.string()), "work"))
    # The first request of an epoch waits for the workers to start.
    fetches = rank.table("fetches", _FETCH_COLUMNS, of_loader & (pc.field("batch") > 0))
    return compare_receiving(_cut(fetches), _cut(stages))


def _cut(rows: pa.Table) -> pa.Table:
    return rows.slice(max(0, rows.num_rows - _MOST_ROWS))


def compare_receiving(fetches: pa.Table, stages: pa.Table) -> Receiving | None:
    """Set fetches beside the work on the same batches; the rows are of one loader."""
    work = _find_work(stages)
    number = _number(fetches)
    at = np.minimum(np.searchsorted(work.batch, number), max(len(work.batch) - 1, 0))
    known = work.batch[at] == number if len(work.batch) else np.zeros(len(number), np.bool_)
    if int(known.sum()) < RECEIVED_FETCHES:
        return None
    at, asked = at[known], read_integers(fetches, "start_ns")[known]
    got = asked + read_integers(fetches, "duration_ns")[known]
    begun = np.maximum(asked, work.sent_ns[at])
    took = np.maximum(got - begun, 0).astype(np.float64)
    left = _find_left(work, work.worker[at], begun)
    busy = left > 0
    idle_ns = _find_idle(took, busy)
    if int(busy.sum()) < RECEIVED_FETCHES:
        return Receiving(idle_ns, 0.0)
    if float(took[busy].mean()) <= idle_ns:  # what the worker does meanwhile makes no difference
        return Receiving(float(took.mean()), 0.0)
    return Receiving(idle_ns, _find_held(np.maximum(took[busy] - idle_ns, 0.0), left[busy]))


def _find_idle(took: Floats, busy: Mask) -> float:
    """Return what taking over costs with a free interpreter. Workers that are always busy hardly show it: then it is the
    median of the few cases, or of all, which the longest waits for an interpreter do not move."""
    idle = took[~busy]
    if len(idle) >= RECEIVED_FETCHES:
        return float(idle.mean())
    return float(np.median(idle if len(idle) >= FEW_FETCHES else took))


def _find_held(longer: Floats, left: Floats) -> float:
    """Return h at which min(h, what was left of the next batch) is, on average, how much longer taking over took."""
    low, high = 0.0, float(longer.max())
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(middle, left).mean() > longer.mean() else (middle, high)
    return high


@dataclass(frozen=True)
class _Work:
    """Per batch, in order of `batch`: its worker, when it was begun and made there, and when it had been sent."""

    batch: Ints
    worker: Ints
    begun_ns: Ints
    made_ns: Ints
    sent_ns: Ints


def _find_work(stages: pa.Table) -> _Work:
    batch, place = np.unique(_number(stages), return_inverse=True)
    starts = read_integers(stages, "start_ns")
    ends = starts + read_integers(stages, "duration_ns")
    is_main = pc.not_equal(stages["stage"].cast(pa.string()), "send").to_numpy()
    worker, made, sent = (np.zeros(len(batch), np.int64) for _ in range(3))
    begun = np.full(len(batch), np.iinfo(np.int64).max)
    worker[place] = read_integers(stages, "replica")
    np.maximum.at(sent, place, ends)
    np.maximum.at(made, place[is_main], ends[is_main])
    np.minimum.at(begun, place[is_main], starts[is_main])
    return _Work(batch, worker, begun, made, sent)


def _find_left(work: _Work, worker: Ints, at_ns: Ints) -> Floats:
    """Return what is left at that time of the batch that each worker makes then, or soon after; 0 if it makes none."""
    begun = (work.worker << _WORKER_BITS) + np.minimum(work.begun_ns, (1 << _WORKER_BITS) - 1)
    order = np.argsort(begun)
    asked = (worker << _WORKER_BITS) + at_ns + SOON_NS
    last = np.searchsorted(begun[order], asked, side="right") - 1
    found = order[np.maximum(last, 0)]
    left = np.where((last >= 0) & (work.worker[found] == worker), work.made_ns[found] - at_ns, 0)
    return np.maximum(left, 0).astype(np.float64)


def _number(rows: pa.Table) -> Ints:
    return (read_integers(rows, "epoch", absent=0) << 36) + read_integers(rows, "batch", absent=0)
