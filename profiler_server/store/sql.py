"""SQL over the tables of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from collector.format import parts
from collector.format.lens import WHOLE
from collector.format.run import RankRun, Run
from collector.format.schema.tables import TABLES
from collector.format.stored_files import arrow_schema, borrow, is_plain

if TYPE_CHECKING:
    import duckdb


def connect(run: Run) -> duckdb.DuckDBPyConnection:
    """Return a connection with one view per table that the run has, all ranks together, `rank` as first column.

    The connection reads nothing but these views: it can open no other file.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    for table in TABLES:
        pieces = []
        for rank in run.ranks:
            rows = _open(run.rank(rank), table)
            if rows is not None:
                name = f"{table}_rank_{rank}"
                connection.register(name, rows)
                pieces.append(f'SELECT {rank}::INTEGER AS rank, * FROM "{name}"')
        if pieces:
            connection.execute(f'CREATE VIEW "{table}" AS {" UNION ALL BY NAME ".join(pieces)}')
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    return connection


def _open(rank: RankRun, table: str) -> ds.Dataset | pa.Table | None:
    """Return the rows of a table, read as the query asks for them; at once where a lens or Arrow needs that."""
    files = parts.find_files(rank.folder, table)
    if not files:
        return None
    if rank.lens != WHOLE or not all(map(is_plain, files)):
        return rank.table(table)
    for path in files:
        borrow(path)
    return ds.dataset([str(path) for path in files], arrow_schema(table))
