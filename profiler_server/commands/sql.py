"""`stepscope sql`: query the tables of a run."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from collector.format.schema.errors import OptionError, TableBrokenError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

if TYPE_CHECKING:
    import duckdb

NAME = "sql"
EXAMPLE = "stepscope sql runs/digits \"select step, duration_ns from steps where kind = 'train'\""
SHOWN_ROWS = 10_000
LIMIT_S = 5.0
BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Limits:
    """The limits of a query: the most rows to print, and the longest time in s. None is no limit."""

    rows: int | None
    time_s: float | None


def command(
    context: typer.Context,
    run: RunName,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One statement of SQL, in quotes.")],
    base_dir: BaseDir = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help=f"Most rows to print: {SHOWN_ROWS:,} by default, all with --csv."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0, help="Longest that the query may take; 0 for no limit.")
    ] = LIMIT_S,
) -> None:
    """Run a DuckDB query over the tables of a run (docs/reference/format.md lists them).

    The table steps holds evaluation and the time outside of steps too: add where kind = 'train'.
    """
    import duckdb

    from profiler_server.store import sql

    found = find_run(run, find_base_dir(base_dir, context))
    connection = sql.connect(found)
    limits = Limits(rows if as_csv else min(rows or SHOWN_ROWS, SHOWN_ROWS), seconds or None)
    try:
        sql.require_question(connection, query)
        is_cut = (print_csv if as_csv else print_table)(connection, query, limits)
    except duckdb.InterruptException:
        raise OptionError(
            f"the query took longer than {seconds:g} s and was ended; --seconds 60 gives it a minute, 0 all it takes"
        ) from None
    except duckdb.Error as error:
        raise OptionError(sql.explain(error, connection)) from None
    except UnicodeDecodeError:
        raise TableBrokenError(
            "a table that the query reads is damaged and cannot be restored: it holds text that is not UTF-8"
        ) from None
    if is_cut:
        more = "--rows N prints more" if as_csv else "--csv prints all"
        typer.echo(f"Cut: these are the first {limits.rows:,} rows, and there are more; {more}", err=True)


def print_table(connection: duckdb.DuckDBPyConnection, query: str, limits: Limits) -> bool:
    """Print the rows as a framed table; return whether rows were left out."""
    from profiler_server.store.sql import OWN_SCHEMA, time_limit

    most, printed = limits.rows or SHOWN_ROWS, f"{OWN_SCHEMA}.printed"
    with time_limit(connection, limits.time_s):
        found = connection.sql(query)
        # Stored in a table, because every call on a relation runs the query again.
        found.limit(most + 1).create(printed)
    held = connection.table(printed)
    rows = len(held.fetchall())
    held.limit(most).show(max_rows=most)
    return rows > most


def print_csv(connection: duckdb.DuckDBPyConnection, query: str, limits: Limits) -> bool:
    """Print the rows as CSV, and return whether rows were left out.

    `limits.time_s` limits the query. Time in which a full pipe blocks does not count.
    """
    from profiler_server.store.sql import time_limit, write_rows

    left_s = limits.time_s
    left = sys.maxsize if limits.rows is None else limits.rows
    is_first = True
    while True:
        begun = time.monotonic()
        with time_limit(connection, left_s):
            if is_first:
                connection.execute(query)
            batch = connection.fetchmany(BATCH_ROWS)
        if is_first:
            write_rows(sys.stdout, [[column[0] for column in connection.description or ()]], "\n")
        write_rows(sys.stdout, batch[:left], "\n")
        if len(batch) > left or not batch:
            return bool(batch)
        is_first = False
        left -= len(batch)
        left_s = None if left_s is None else max(left_s - (time.monotonic() - begun), 0.001)
