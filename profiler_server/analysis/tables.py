"""Readers of a rank's tables that return no rows for a missing table, and row selection by id and by text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints
from collector.format.parts import find_files, read_files
from collector.format.run import RankRun
from collector.format.schema.errors import TableBrokenError, TableMissingError, read_or


def read_rows(rank: RankRun, table: str, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
    """Read columns of a table, of the rows that match `where`; no rows if the table was never written. Raises
    TableBrokenError or NewerSchemaError.
    """
    if not find_files(rank.folder, table):
        return read_files((), table, columns)
    return rank.table(table, columns, where)


def find_rows(rank: RankRun, table: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of a table; no rows if the table is missing or unreadable. The web page of the table shows the
    reason.
    """
    found = read_or(None, read_rows, rank, table, columns)
    return read_files((), table, columns) if found is None else found


def find_sound(rank: RankRun, table: str, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
    """Read columns of a table; no rows if the table is missing or damaged. The table's own page shows the damage.

    Raises NewerSchemaError, because no page would show that rows of a newer table are left out.
    """
    try:
        return read_rows(rank, table, columns, where)
    except (TableMissingError, TableBrokenError):
        return read_files((), table, columns)


def find_places(ids: Ints, wanted: Ints) -> Ints:
    """Return for each wanted id the index in `ids` of the row with this id; -1 for an id without a row."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    if ids[0] == 0 and ids[-1] == len(ids) - 1 and (ids[1:] > ids[:-1]).all():
        return np.where((wanted >= 0) & (wanted < len(ids)), wanted, -1)  # ids in an imported trace are row numbers
    order = np.argsort(ids, kind="stable")
    found = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[found] == wanted, found, -1)


def is_text(rows: pa.Table, column: str, *texts: str) -> pa.ChunkedArray:
    """Return a mask of the rows whose column holds one of `texts`. Null matches none of them."""
    return pc.is_in(rows[column].cast(pa.string()), pa.array(texts, pa.string()))


def choose(rows: pa.Table, column: str, *texts: str) -> pa.Table:
    """Return the rows whose column holds one of `texts`."""
    return rows.filter(is_text(rows, column, *texts))
