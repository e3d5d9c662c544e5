"""Whether the workers had made a batch when the step asked for it: the time of each fetch beside the work on its batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, Mask
from collector.format.parts import find_files, read_files
from collector.format.run import RankRun
from collector.format.steps import read_integers
from profiler_server.diagnosis.limits.data import LEAST_FETCHES
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
