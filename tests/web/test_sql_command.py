"""The command `sql` ends cleanly: no thread of its own outlives a query."""

from __future__ import annotations

import threading

import duckdb

from profiler_server.commands.sql import _ending


def test_nothing_holds_the_connection_when_a_query_has_ended() -> None:
    before = threading.enumerate()
    with duckdb.connect(":memory:") as connection, _ending(connection, 60.0):
        connection.execute("SELECT 1")
    assert threading.enumerate() == before
