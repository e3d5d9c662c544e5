"""Each fetch of the training thread, compared with the work on its batch: was the batch made in time, and how long did
receiving take.

To receive a batch, the training thread opens its memory, which a second thread of the worker hands over. That thread
must wait for the interpreter while the worker computes the next batch in Python. So fetches with and without such a
wait are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints, Mask
from collector.format.run import RankRun
from collector.format.steps import read_integers
from profiler_server.analysis.data.batches import cut_latest, number_batches, read_work
from profiler_server.analysis.tables import find_places, read_rows
from profiler_server.diagnosis.limits.data import FEW_FETCHES, LEAST_FETCHES, RECEIVED_FETCHES, SOON_NS
from profiler_server.facts.loading import Receiving
from profiler_server.facts.pipeline import Making, OwnMaking

_MOST_ROWS = 100_000
_WORKER_BITS = 52
_ROUNDS = 30
_COLUMNS = ("loader", "epoch", "batch", "start_ns", "duration_ns")


def read_making(rank: RankRun, loader: int) -> Making | None:
    """Return how often a requested batch had already been made, and the share of the wait for batches in which the
    batch was still being made.

    None if too few fetches can be matched. Raises TableBrokenError or NewerSchemaError, like all readers of this
    module.
    """
    work, fetches = _sum_batches(_read_work(rank, loader)), _read_fetches(rank, loader)
    at = find_places(work.batch, number_batches(fetches))
    known, at = at >= 0, at[at >= 0]
    if len(at) < LEAST_FETCHES:
        return None
    asked, wait = (read_integers(fetches, name)[known] for name in ("start_ns", "duration_ns"))
    unmade = np.clip(work.sent_ns[at] - asked, 0, np.maximum(wait, 0))
    whole = float(np.maximum(wait, 0).sum())
    return Making(float((unmade == 0).mean()), float(unmade.sum()) / whole if whole else 0.0)


def read_own_making(rank: RankRun, loader: int) -> OwnMaking | None:
    """Return two means for batches of a loader that the training process makes itself: the wait for a batch, and its
    recorded work. `loader` is the loader's number.

    None if too few fetches have recorded work.
    """
    rows, fetches = read_work(rank, loader), read_rows(rank, "fetches", _COLUMNS, pc.field("loader") == loader)
    rows = rows.filter(pc.less(rows["replica"], 0))
    batches, place = np.unique(number_batches(rows), return_inverse=True)
    took = np.bincount(place, read_integers(rows, "duration_ns"), len(batches))
    numbers = number_batches(fetches)
    matched = np.isin(numbers, batches)
    if int(matched.sum()) < LEAST_FETCHES:
        return None
    waited = read_integers(fetches, "duration_ns")[matched]
    return OwnMaking(float(waited.mean()), float(took[np.isin(batches, numbers)].mean()))


def read_receiving(rank: RankRun, loader: int) -> Receiving | None:
    """Return the cost of receiving the latest batches of the loader with this number; None with too few batches."""
    fetches, work = _read_fetches(rank, loader), _read_work(rank, loader)
    return compare_receiving(cut_latest(fetches, _MOST_ROWS), cut_latest(work, _MOST_ROWS))


def _read_work(rank: RankRun, loader: int) -> pa.Table:
    rows = read_work(rank, loader)
    return rows.filter(pc.greater_equal(rows["replica"], 0))


def _read_fetches(rank: RankRun, loader: int) -> pa.Table:
    """Read all fetches except the first of each epoch, which waits for the workers to start."""
    return read_rows(rank, "fetches", _COLUMNS, (pc.field("loader") == loader) & (pc.field("batch") > 0))


def compare_receiving(fetches: pa.Table, stages: pa.Table) -> Receiving | None:
    """Compare fetches with the work on the same batches, or return None with too few batches. All rows are of one
    loader."""
    work = _sum_batches(stages)
    at = find_places(work.batch, number_batches(fetches))
    known, at = at >= 0, at[at >= 0]
    if len(at) < RECEIVED_FETCHES:
        return None
    asked = read_integers(fetches, "start_ns")[known]
    got = asked + read_integers(fetches, "duration_ns")[known]
    begun = np.maximum(asked, work.sent_ns[at])
    took = np.maximum(got - begun, 0).astype(np.float64)
    left = _find_left(work, work.worker[at], begun)
    busy = left > 0
    idle_ns = _find_idle(took, busy)
    if int(busy.sum()) < RECEIVED_FETCHES:
        return Receiving(idle_ns, 0.0)
    if float(took[busy].mean()) <= idle_ns:  # the worker's state does not matter
        return Receiving(float(took.mean()), 0.0)
    return Receiving(idle_ns, _find_held(np.maximum(took[busy] - idle_ns, 0.0), left[busy]))


def _find_idle(took: Floats, busy: Mask) -> float:
    """Return the cost in ns of receiving a batch while the interpreter of its worker is free.

    If workers are nearly always busy, the cost is the median of the few free cases, or of all cases. A median ignores
    the longest waits for an interpreter.
    """
    idle = took[~busy]
    if len(idle) >= RECEIVED_FETCHES:
        return float(idle.mean())
    return float(np.median(idle if len(idle) >= FEW_FETCHES else took))


def _find_held(longer: Floats, left: Floats) -> float:
    """Return how long a busy worker delays receiving, in ns. For this delay h, min(h, `left`) has the same mean as
    `longer`.
    """
    low, high = 0.0, float(longer.max())
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(middle, left).mean() > longer.mean() else (middle, high)
    return high


@dataclass(frozen=True)
class _Work:
    """One entry per batch, sorted by `batch`: the worker, and the times at which the batch was begun, made and sent."""

    batch: Ints
    worker: Ints
    begun_ns: Ints
    made_ns: Ints
    sent_ns: Ints


def _sum_batches(stages: pa.Table) -> _Work:
    batch, place = np.unique(number_batches(stages), return_inverse=True)
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
    """Return how long, in ns, each worker still works after `at_ns` on its current batch; 0 without a current batch.

    A batch is current if the worker has begun it by `at_ns` or begins it soon after.
    """
    begun = (work.worker << _WORKER_BITS) + np.minimum(work.begun_ns, (1 << _WORKER_BITS) - 1)
    order = np.argsort(begun)
    asked = (worker << _WORKER_BITS) + at_ns + SOON_NS
    last = np.searchsorted(begun[order], asked, side="right") - 1
    found = order[np.maximum(last, 0)]
    left = np.where((last >= 0) & (work.worker[found] == worker), work.made_ns[found] - at_ns, 0)
    return np.maximum(left, 0).astype(np.float64)
