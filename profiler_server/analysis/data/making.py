"""Whether the workers had made a batch when the step asked for it: the time of each fetch beside the work on its batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, Mask
from collector.format.parts import find_files
from collector.format.run import RankRun
from collector.format.steps import read_integers

_MIN_FETCHES = 20
_FETCH_COLUMNS = ("loader", "epoch", "batch", "start_ns", "duration_ns")
_STAGE_COLUMNS = ("kind", "replica", "loader", "epoch", "batch", "start_ns", "duration_ns")


@dataclass(frozen=True)
class Making:
    """How far the workers were behind the step.

    `made_frac` is the share of the requests whose batch was finished before it was asked for, `unmade_wait_frac` the
    share of all waiting that passed before the batch was finished; the rest was spent on receiving it.
    """

    made_frac: float
    unmade_wait_frac: float


def read_making(rank: RankRun, loader: int) -> Making | None:
    """Compare the fetches of a loader with the work of its workers, None where too few can be matched.

    Raises TableBrokenError or NewerSchemaError.
    """
    if not find_files(rank.folder, "stages"):
        return None
    return compare_fetches(rank, rank.table("stages", _STAGE_COLUMNS, pc.field("loader") == loader))


def compare_fetches(rank: RankRun, stages: pa.Table) -> Making | None:
    """Do the same with rows of `stages` of one loader."""
    work = stages.filter(
        pc.and_(
            pc.equal(stages["kind"].cast(pa.string()), "work"),
            pc.and_(pc.greater_equal(stages["replica"], 0), pc.is_valid(stages["batch"])),
        )
    )
    loaders = work["loader"].drop_null().unique()
    if len(loaders) != 1 or not find_files(rank.folder, "fetches"):
        return None
    fetches = rank.table("fetches", _FETCH_COLUMNS, pc.field("loader") == loaders[0])
    # The first request of an epoch waits for the workers to start, and no stage is to blame for that.
    fetches = fetches.filter(pc.greater(fetches["batch"], 0))
    made_ns, known = _find_ends(work, _number_batches(fetches))
    if int(known.sum()) < _MIN_FETCHES:
        return None
    asked, wait = read_integers(fetches, "start_ns")[known], read_integers(fetches, "duration_ns")[known]
    unmade = np.clip(made_ns[known] - asked, 0, np.maximum(wait, 0))
    whole = float(np.maximum(wait, 0).sum())
    return Making(float((unmade == 0).mean()), float(unmade.sum()) / whole if whole else 0.0)


def _number_batches(rows: pa.Table) -> Ints:
    return (read_integers(rows, "epoch") << 36) + read_integers(rows, "batch")


def _find_ends(work: pa.Table, wanted: Ints) -> tuple[Ints, Mask]:
    """Return when the work on each of these batches ended, and for which of them any was recorded."""
    batches, place = np.unique(_number_batches(work), return_inverse=True)
    if not len(batches):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    ends = np.full(len(batches), np.iinfo(np.int64).min)
    np.maximum.at(ends, place, read_integers(work, "start_ns") + read_integers(work, "duration_ns"))
    at = np.minimum(np.searchsorted(batches, wanted), len(batches) - 1)
    return ends[at], batches[at] == wanted
