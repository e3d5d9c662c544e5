"""The command `sql` ends cleanly: no thread of its own outlives a query."""

from __future__ import annotations

import threading
import time

import duckdb
import pytest

from profiler_server.commands.sql import _time_limit


class SlowToEnd(threading.Timer):
    """A timer whose thread gets no processor for a while after it was cancelled."""

    def run(self) -> None:
        super().run()
        time.sleep(0.2)


def test_nothing_holds_the_connection_when_a_query_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Timer", SlowToEnd)
    before = threading.enumerate()
    with duckdb.connect(":memory:") as connection, _time_limit(connection, 60.0):
        connection.execute("SELECT 1")
    assert [thread for thread in threading.enumerate() if thread not in before] == []
