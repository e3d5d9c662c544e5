"""`profiler-server sql`: ask the tables of a run."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from collector.format.schema.errors import OptionError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

if TYPE_CHECKING:
    import duckdb

NAME = "sql"
EXAMPLE = "profiler-server sql runs/digits \"select step, duration_ns from steps where kind = 'train'\""
SHOWN_ROWS = 1000
BATCH_ROWS = 10_000
_CHANGES = ("ALTER", "CREATE", "DELETE", "DROP", "INSERT", "UPDATE")


def command(
    context: typer.Context,
    run: RunName,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One statement of SQL, in quotes.")],
    base_dir: BaseDir = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
) -> None:
    """Run a DuckDB query over the tables of a run (docs/format.md lists them).

    The table steps holds evaluation and the time outside of steps too: add where kind = 'train'.
    """
    import duckdb

    from profiler_server.store import sql

    connection = sql.connect(find_run(run, find_base_dir(base_dir, context)))
    try:
        require_one(connection.extract_statements(query))
        if as_csv:
            write_csv(connection.execute(query))
        elif found := connection.sql(query):
            found.show(max_rows=SHOWN_ROWS)
    except duckdb.Error as error:
        raise OptionError(explain(error, connection)) from None


def require_one(statements: Sequence[object]) -> None:
    """Raise OptionError unless there is one statement that asks: of several, all but the last would run without a word."""
    if any(getattr(getattr(statement, "type", None), "name", "") in _CHANGES for statement in statements):
        raise OptionError("The tables of a run are read-only: QUERY can ask them, and change nothing")
    if len(statements) != 1:
        found = f"this has {len(statements)}; ask them one by one" if statements else "this is empty"
        raise OptionError(f"QUERY takes one statement of SQL, and {found}")


def explain(error: duckdb.Error, connection: duckdb.DuckDBPyConnection) -> str:
    """Return what is wrong with a query in a line; for a table that is not there, the tables that are."""
    import duckdb

    text = str(error).splitlines()[0]
    if not isinstance(error, duckdb.CatalogException):
        return text
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall()
    tables = (name for (name,) in views if "_rank_" not in name)
    return f"{text} This run has the tables: {', '.join(tables)}"


def write_csv(found: duckdb.DuckDBPyConnection) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow([column[0] for column in found.description or ()])
    while rows := found.fetchmany(BATCH_ROWS):
        out.writerows(rows)
