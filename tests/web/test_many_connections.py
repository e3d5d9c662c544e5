"""More connections than the server may open files: who says nothing makes room for who does."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.asking import PATIENCE_S, Asker
from tests.support.runs import RunPlan, build_run
from tests.web.test_uploads import BOUNDARY, TRACE, _encode

DESCRIPTORS = 128
DRIBBLING = DESCRIPTORS + 22
"""Of each kind."""
SENT = (b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"POST /api/v1/imports")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A server that may open few files."""
    build_run(tmp_path / "runs" / "a", RunPlan(steps=5))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    command = [sys.executable, "-m", "profiler_server.cli", "--summary-base-dir", str(tmp_path / "runs"), "--port", "0"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=limit) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        found = next(word.rstrip("/") for word in line.split() if word.startswith("http://"))
        yield found, int(found.rpartition(":")[2])
        process.terminate()


def test_pages_are_answered_while_hundreds_of_connections_say_nothing(tmp_path: Path, address: tuple[str, int]) -> None:
    with ExitStack() as held:
        for number in range(DRIBBLING * len(SENT)):
            connection = held.enter_context(closing(socket.create_connection(("127.0.0.1", address[1]), PATIENCE_S)))
            connection.sendall(SENT[number // DRIBBLING])
            if number % 50 == 49:
                for page in ("/", "/runs/a/", "/runs/a/timeline", "/api/v1/runs/a/timeline/meta"):
                    with urllib.request.urlopen(address[0] + page, timeout=PATIENCE_S) as answer:
                        assert answer.status == 200
    assert "Too many open files" not in (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_only_some_uploads_come_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(tmp_path)
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    monkeypatch.setattr("profiler_server.web.bounds.UPLOADS_AT_ONCE", 0)
    refused = asker.ask("/api/v1/imports", "POST", kind, _encode(("a.json", TRACE)))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    monkeypatch.setattr("profiler_server.web.bounds.UPLOADS_AT_ONCE", 1)
    for _ in range(3):
        assert asker.ask("/api/v1/imports", "POST", kind, b"").status_code == 400
