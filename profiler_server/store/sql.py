"""SQL on the tables of a run, and CSV output (RFC 4180) in which no text runs as a formula of a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from collector.format import parts
from collector.format.lens import WHOLE
from collector.format.run import RankRun, Run
from collector.format.schema.errors import OptionError
from collector.format.schema.tables import TABLES
from collector.format.stored_files import arrow_schema, borrow, is_plain

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as ds


BATCH_ROWS = 10_000
OWN_SCHEMA = "stepscope"
"""Holds what a query needs and `SHOW TABLES` should not list."""
_FORMULA = re.compile(r"^[=+@\t\r-]")
"""The beginning of a cell that a spreadsheet reads as a formula. frontend/static/js/csv.js has the same rule."""
_ASKING = ("SELECT", "EXPLAIN", "PRAGMA", "MULTI")
"""Kinds of statements that only read. DuckDB reports PIVOT as MULTI."""
_NUMBER = re.compile(r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$")


class _Sink(Protocol):
    def write(self, text: str, /) -> Any: ...


def guard_cell(value: Any) -> Any:
    """Return a value for CSV. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if isinstance(value, (int, float)) or value is None:
        return value
    text = str(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else value


def write_rows(sink: _Sink, rows: Iterable[Sequence[Any]], line_end: str = "\r\n") -> None:
    """Write rows of values to `sink` as CSV. None becomes an empty field."""
    csv.writer(sink, lineterminator=line_end).writerows([guard_cell(value) for value in row] for row in rows)


def write_csv(rows: pa.Table) -> Iterator[str]:
    """Yield a table as CSV (RFC 4180) text: the header, then batches of rows. Null becomes an empty field."""
    yield ",".join(rows.column_names) + "\r\n"
    for batch in rows.to_batches(BATCH_ROWS):
        text = io.StringIO()
        write_rows(text, zip(*(column.to_pylist() for column in batch.columns), strict=True))
        yield text.getvalue()


def connect(run: Run) -> duckdb.DuckDBPyConnection:
    """Return a connection with one view for each table of the run. A view holds all ranks, with `rank` as first column.

    The connection can read these views only. It can open no file.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute(f"CREATE SCHEMA {OWN_SCHEMA}; USE {OWN_SCHEMA}")
    for table in TABLES:
        pieces = []
        for rank in run.ranks:
            rows = _open(run.rank(rank), table)
            if rows is not None:
                name = f"{table}_rank_{rank}"
                connection.from_arrow(rows).create_view(name)
                pieces.append(f'SELECT {rank}::INTEGER AS rank, * FROM {OWN_SCHEMA}."{name}"')
        if pieces:
            connection.execute(f'CREATE VIEW main."{table}" AS {" UNION ALL BY NAME ".join(pieces)}')
    connection.execute("USE main; SET enable_external_access = false; SET lock_configuration = true")
    return connection


def _open(rank: RankRun, table: str) -> ds.Dataset | pa.Table | None:
    """Return the rows of a table, read lazily where possible; None if the table has no files.

    All rows are read at once if steps are selected or names are redacted, or if Arrow rejects the path.
    """
    import pyarrow.dataset as ds  # takes a while, and no page needs it

    files = parts.find_files(rank.folder, table)
    if not files:
        return None
    if rank.lens != WHOLE or not all(map(is_plain, files)):
        return rank.table(table)
    for path in files:
        borrow(path)
    return ds.dataset([str(path) for path in files], arrow_schema(table))


def require_question(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise OptionError unless the query is a single statement that only reads."""
    try:
        statements = connection.extract_statements(query)
        kinds = {statement.type.name for statement in statements}
    except ValueError:  # the Python package of DuckDB has no name for some kinds of statements
        kinds = {"UNKNOWN"}
        statements = []
    if kinds - set(_ASKING):
        raise OptionError("The tables of a run are read-only: QUERY can read them (SELECT), not change them")
    if len(statements) != 1:
        found = f"this has {len(statements)}; run them one by one" if statements else "this is empty"
        raise OptionError(f"QUERY takes one statement of SQL, and {found}")


def explain(error: duckdb.Error, connection: duckdb.DuckDBPyConnection) -> str:
    """Return the error of a query in one line; for a missing table, list the existing tables."""
    import duckdb

    text = str(error).splitlines()[0]
    if not isinstance(error, duckdb.CatalogException):
        return text
    tables = ", ".join(name for (name,) in connection.execute("SHOW TABLES").fetchall())
    return f"{text} This run has the tables: {tables}"


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, after_s: float | None) -> Iterator[None]:
    """Interrupt the query of the block after a time: `duckdb.InterruptException`. None is no limit."""
    if after_s is None:
        yield
        return
    timer = threading.Timer(after_s, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # else it may be the last to hold the connection, and drop it while Python ends
