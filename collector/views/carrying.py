"""The tables that a trace carries beside its events, so that an import of it gives the same tables again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format import carried
from collector.format.intervals import Ints
from collector.format.schema.errors import RunError
from collector.format.schema.tables import TABLES

if TYPE_CHECKING:
    from collector.format.run import RankRun, Run


class Window(Protocol):
    """A part of a rank: `count` steps or stretches of time, and which rows are in it."""

    @property
    def count(self) -> int: ...

    def holds(self, start: Ints, end: Ints, step: Ints) -> npt.NDArray[np.bool_]: ...


def carry_whole(rank: RankRun) -> Window | None:
    """Leave nothing of a rank out."""
    return None


def carry_tables(
    run: Run, ranks: list[RankRun], find_window: Callable[[RankRun], Window | None] = carry_whole
) -> dict[str, Any]:
    """Return the tables of the ranks, or of a window of each, as a key of the file; none if they are too long."""
    found = {}
    for rank in ranks:
        try:
            window = find_window(rank)
        except RunError:
            continue
        if window is not None and not window.count:
            continue
        tables = _read_tables(rank, window)
        if tables is None:
            return {}
        whole = window is None and not rank.manifest.is_trace
        found[rank.rank] = (replace(rank.manifest, recorded_whole=whole), tables)
    packed = carried.carry(run.manifest.epoch_unix_ns, run.manifest.world_size, found)
    return {carried.MARK: packed} if packed else {}


def _read_tables(rank: RankRun, window: Window | None) -> dict[str, pa.Table] | None:
    tables: dict[str, pa.Table] = {}
    try:
        if any(rank.count_rows(name) > carried.MOST_ROWS for name in TABLES):
            return None
        for name in TABLES:
            if rank.status(name).state in ("there", "empty"):
                tables[name] = _cut(rank.table(name), window)
    except (RunError, OSError, pa.ArrowException):
        return None
    return tables


def _cut(table: pa.Table, window: Window | None) -> pa.Table:
    """Return the rows of a window: of its steps, or of its time where a row has no step."""
    if window is None or not {"step", "start_ns"} & set(table.column_names):
        return table
    rows = table.num_rows
    step = table["step"].fill_null(-1).to_numpy() if "step" in table.column_names else np.full(rows, -1, np.int64)
    # A row without a time lies after everything, so that only its step counts.
    never = np.full(rows, np.iinfo(np.int64).max - 1)
    start = table["start_ns"].to_numpy() if "start_ns" in table.column_names else never
    length = table["duration_ns"].fill_null(0).to_numpy() if "duration_ns" in table.column_names else 0
    return table.filter(pa.array(window.holds(start, start + np.maximum(length, 0), step)))
