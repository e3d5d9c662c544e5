"""What a client sends is bounded in size and in time before anything is made of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from profiler_server.settings import Settings
from profiler_server.web import bounds
from tests.support.asking import Asker

PIECE = b"[],[]," * 2730
ROUTES = ("/api/v1/runs/healthy/window", "/api/v1/runs/nonexistent/window", "/api/v1/traces/imports")


class Sender:
    """A client that sends pieces for as long as the server takes them; `pause_s` lies before each."""

    def __init__(self, pieces: int, pause_s: float = 0.0, piece: bytes = PIECE) -> None:
        self.taken = 0
        self._pieces, self._pause_s, self._piece = pieces, pause_s, piece
        self.sent: list[MutableMapping[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(self._pause_s)
        self.taken += 1
        return {"type": "http.request", "body": self._piece, "more_body": self.taken < self._pieces}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def error(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.sent[1:]))["error"]


def _post(asker: Asker, path: str, sender: Sender, **headers: str) -> Sender:
    given = {"host": "127.0.0.1", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8080),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
    }
    asyncio.run(asker.app(scope, sender.receive, sender.send))
    return sender


@pytest.mark.parametrize("path", [*ROUTES, "/api/v1/nowhere"])
def test_a_body_that_does_not_end_is_refused_after_64_kib(asker: Asker, path: str) -> None:
    sender = _post(asker, path, Sender(2000))
    assert (sender.status, sender.error["kind"]) == (413, "too_large")
    assert sender.taken <= 5


def test_a_body_that_is_announced_too_long_is_not_read(asker: Asker) -> None:
    sender = _post(asker, ROUTES[0], Sender(2000), content_length=str(40 << 20))
    assert (sender.status, sender.taken) == (413, 0)


def test_the_limit_holds_where_uploads_are_off(web_base: Path) -> None:
    off = Asker(web_base, Settings(web_base, upload_limit_bytes=0))
    sender = _post(off, ROUTES[2], Sender(2000))
    assert sender.status == 413
    assert sender.taken <= 5


def test_the_form_of_a_page_is_limited_alike(asker: Asker) -> None:
    form = {"content_type": "application/x-www-form-urlencoded"}
    sender = _post(asker, "/runs/healthy/window", Sender(2000, piece=b"count=1&" * 2000), **form)
    assert sender.status == 413
    assert sender.taken <= 5


def test_a_body_of_the_size_that_is_taken_is_read_whole(asker: Asker) -> None:
    body = json.dumps({"files": ["x" * (60 << 10)]}).encode()
    sender = _post(asker, ROUTES[2], Sender(1, piece=body))
    assert (sender.status, sender.error["kind"]) == (404, "not_found")


def test_the_worst_body_that_is_taken_is_answered_with_few_words(asker: Asker) -> None:
    body = b'{"files": [' + b"[]," * 21_000 + b"[]]}"
    sender = _post(asker, ROUTES[2], Sender(1, piece=body))
    assert sender.status == 422
    assert len(sender.error["message"]) < 1000


def test_a_body_that_dribbles_is_given_up(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BODY_LIMIT_S", 0.05)
    sender = _post(asker, ROUTES[0], Sender(1000, 0.02, b" "))
    assert (sender.status, sender.error["kind"]) == (408, "too_slow")


def test_an_upload_that_stands_still_is_given_up_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "UPLOAD_PAUSE_LIMIT_S", 0.05)
    kind = {"content_type": "multipart/form-data; boundary=b"}
    sender = _post(Asker(tmp_path), bounds.UPLOAD_PATH, Sender(3, 5.0, b"--b\r\n"), **kind)
    assert sender.status == 400
    assert list(tmp_path.iterdir()) == []


def test_an_upload_that_dribbles_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "UPLOAD_PAUSE_LIMIT_S", 0.2)
    monkeypatch.setattr(bounds, "UPLOAD_SLOWEST_BYTES_PER_S", 1e9)
    kind = {"content_type": "multipart/form-data; boundary=b"}
    began_s = time.monotonic()
    sender = _post(Asker(tmp_path), bounds.UPLOAD_PATH, Sender(10_000, 0.01, b" "), **kind)
    assert sender.status == 400
    assert sender.taken < 10_000
    assert time.monotonic() - began_s < 30
