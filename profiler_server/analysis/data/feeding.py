"""The DataLoaders that feed the steps, and each step's wait for each DataLoader."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints, Mask
from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.steps import read_integers, select_steps, train_steps
from profiler_server.analysis.tables import find_places, find_rows
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.data import FED_FRAC

_STEP_COLUMNS = ("index", "step", "kind", "start_ns", "duration_ns", "data_wait_ns", "batch", "loader_start_ns")
_MORE_COLUMNS = ("detailed", "loader", "fetches")


@dataclass(frozen=True)
class Feed:
    """The wait in ns for one loader, and the number of batches fetched from it, in each training step. `loader` is
    its number, None if unknown."""

    loader: int | None
    wait_ns: Ints
    fetches: Ints

    def mean_wait_ns(self, chosen: Mask) -> float:
        return float(self.wait_ns[chosen].mean()) if chosen.any() else 0.0


def read_feeds(rank: RankRun, train: pa.Table) -> tuple[Feed, ...]:
    """Return one feed per loader that feeds these training steps, sorted by the number of the loader.

    With fewer than two such loaders, there is a single feed with the whole wait for data. Its loader is the loader of
    most steps, None if unknown.
    """
    whole = Feed(find_most_used(train), read_integers(train, "data_wait_ns"), read_integers(train, "fetches"))
    fetches = find_rows(rank, "fetches", ("index", "loader", "duration_ns"))
    if not train.num_rows:
        return (whole,)
    feeds = _split(fetches, train)
    return feeds if len(feeds) > 1 else (whole,)


@derived()
def find_feeding_loaders(rank: RankRun) -> tuple[int, ...]:
    """Return the numbers of the loaders that feed the steps, the longest wait first; empty if none is known."""
    rows = read_or(None, read_step_rows, rank, (*_STEP_COLUMNS, *_MORE_COLUMNS))
    if rows is None:
        return ()
    train, selection = train_steps(rows.steps), select_steps(rows.steps)
    feeds = sorted(read_feeds(rank, train), key=lambda feed: -feed.mean_wait_ns(selection.regular))
    return tuple(feed.loader for feed in feeds if feed.loader is not None)


def _split(fetches: pa.Table, train: pa.Table) -> tuple[Feed, ...]:
    rows = read_integers(train, "index")
    index, loader, took = (read_integers(fetches, name) for name in ("index", "loader", "duration_ns"))
    place = find_places(rows, index)
    known = place >= 0
    feeds = []
    for number in np.unique(loader[known]):
        mine = known & (loader == number)
        waits = np.bincount(place[mine], weights=took[mine], minlength=len(rows)).astype(np.int64)
        counts = np.bincount(place[mine], minlength=len(rows)).astype(np.int64)
        if (counts > 0).mean() >= FED_FRAC:
            feeds.append(Feed(int(number), np.minimum(waits, read_integers(train, "data_wait_ns")), counts))
    return tuple(feeds)


def find_most_used(rows: pa.Table) -> int | None:
    """Return the number of the loader with the most rows; None if no row names a loader."""
    used = rows["loader"].drop_null().to_numpy()
    if not len(used):
        return None
    numbers, counts = np.unique(used, return_counts=True)
    return int(numbers[counts.argmax()])
