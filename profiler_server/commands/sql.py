"""`profiler-server sql`: ask the tables of a run."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from collector.schema.errors import OptionError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

if TYPE_CHECKING:
    import duckdb

NAME = "sql"
SHOWN_ROWS = 1000
BATCH_ROWS = 10_000


def command(
    context: typer.Context,
    run: RunName,
    query: Annotated[str, typer.Argument(help='Such as "select step, duration_ns from steps".')],
    base_dir: BaseDir = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
) -> None:
    """Run a DuckDB query over the tables of a run (docs/format.md lists them)."""
    import duckdb

    from profiler_server.store import sql

    connection = sql.connect(find_run(run, find_base_dir(base_dir, context)))
    try:
        if as_csv:
            write_csv(connection.execute(query))
        elif found := connection.sql(query):
            found.show(max_rows=SHOWN_ROWS)
    except duckdb.Error as error:
        raise OptionError(str(error).splitlines()[0]) from None


def write_csv(found: duckdb.DuckDBPyConnection) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow([column[0] for column in found.description or ()])
    while rows := found.fetchmany(BATCH_ROWS):
        out.writerows(rows)
