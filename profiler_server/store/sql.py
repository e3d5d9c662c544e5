"""SQL over the tables of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from collector.format import parts
from collector.format.run import Run
from collector.format.schema.tables import TABLES

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
            files = parts.find_files(run.rank(rank).folder, table)
            if files:
                name = f"{table}_rank_{rank}"
                connection.register(name, ds.dataset([str(path) for path in files], parts.arrow_schema(table)))
                pieces.append(f'SELECT {rank}::INTEGER AS rank, * FROM "{name}"')
        if pieces:
            connection.execute(f'CREATE VIEW "{table}" AS {" UNION ALL BY NAME ".join(pieces)}')
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    return connection
