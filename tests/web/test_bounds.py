"""What a server takes on at a time: bodies, heavy work, and clients that take their answer slowly."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from profiler_server.web import bounds, patience
from profiler_server.web.bounds import Crowding
from tests.support.asking import Asker

EXPORT = "/api/v1/runs/team/a/timeline/export"


class Slow:
    """An app whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        if scope["path"] == EXPORT:
            await self.open.wait()
        self.running -= 1
        await PlainTextResponse("done")(scope, receive, send)


async def _crowd(app: Slow, served: int) -> tuple[list[httpx.Response], httpx.Response]:
    """Ask for nine downloads and, once all but those served are refused, for a page; then let the downloads go."""
    transport = httpx.ASGITransport(Crowding(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        asked = [asyncio.create_task(client.get(EXPORT)) for _ in range(9)]
        while app.running < bounds.AT_ONCE or sum(task.done() for task in asked) < len(asked) - served:
            await asyncio.sleep(0.01)
        page = await client.get("/runs/team/a/")
        app.open.set()
        return list(await asyncio.gather(*asked)), page


@pytest.mark.parametrize(("patience_s", "served"), [(60.0, 9), (0.05, bounds.AT_ONCE)])
def test_downloads_take_turns_and_pages_do_not_wait(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, served: int
) -> None:
    monkeypatch.setattr(bounds, "PATIENCE_S", patience_s)

    async def ask() -> tuple[Slow, list[httpx.Response], httpx.Response]:
        app = Slow()
        return app, *await _crowd(app, served)

    app, answers, page = asyncio.run(ask())
    assert page.text == "done"
    assert app.most <= bounds.AT_ONCE + 1  # and the page
    assert [answer.status_code for answer in answers].count(200) == served
    refused = [answer for answer in answers if answer.status_code != 200]
    assert all((answer.status_code, answer.headers["retry-after"]) == (503, "5") for answer in refused)
    assert all(answer.json()["error"]["kind"] == "busy" for answer in refused)


@pytest.mark.parametrize(
    ("path", "is_heavy"),
    [
        (EXPORT, True),
        ("/api/v1/runs/a/tables/steps", True),
        ("/api/v1/runs/a/operators", True),
        ("/api/v1/runs/a/timeline/tile", False),
        ("/runs/a/operators", False),
        ("/", False),
    ],
)
def test_what_counts_as_heavy(path: str, is_heavy: bool) -> None:
    assert bool(bounds.HEAVY.fullmatch(path)) == is_heavy


PIECE = b"[],[]," * 2730
ROUTES = ("/api/v1/runs/healthy/window", "/api/v1/runs/nonexistent/window")


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


def test_a_body_of_the_size_that_is_taken_is_read_whole(asker: Asker) -> None:
    body = json.dumps({"first": 0, "more": "x" * (60 << 10)}).encode()
    sender = _post(asker, ROUTES[1], Sender(1, piece=body))
    assert (sender.status, sender.error["kind"]) == (404, "run_not_found")


def test_the_worst_body_that_is_taken_is_answered_with_few_words(asker: Asker) -> None:
    body = b'{"first": [' + b"[]," * 21_000 + b"[]]}"
    sender = _post(asker, ROUTES[1], Sender(1, piece=body))
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


LARGE_BYTES = 24 << 20
"""More than the buffers of both ends take."""
DOWNLOAD = "/api/v1/runs/a/timeline/export"
PATIENCE_S = 60.0


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """An app with a page, a large answer in one piece, and one that streams."""
    made: Response = PlainTextResponse("page")
    if scope["path"] == DOWNLOAD:
        made = Response(bytes(LARGE_BYTES))
    elif scope["path"] == "/stream":
        made = StreamingResponse(bytes(1 << 16) for _ in range(LARGE_BYTES >> 16))
    await made(scope, receive, send)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, uvicorn.Server]]:
    config = uvicorn.Config(
        Crowding(answer), port=0, lifespan="off", log_level="critical", http=patience.PatientProtocol
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1], server
    finally:
        server.should_exit = server.force_exit = True
        await running


async def ask_slowly(port: int, path: str, pause_s: float, piece_bytes: int = 1) -> int:
    """Ask, then read a piece at a time; return what came until the end."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    taken = 0
    try:
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        while piece := await loop.sock_recv(client, piece_bytes):
            taken += len(piece)
            await asyncio.sleep(pause_s)
    except ConnectionError:
        return -1
    finally:
        client.close()
    return taken


async def ask_page(port: int, path: str = "/") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    writer.transport.abort()
    return status


async def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def play(act: Callable[[int, uvicorn.Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving() as (port, server):
            await act(port, server)

    asyncio.run(run())


@pytest.mark.parametrize("path", [DOWNLOAD, "/stream"])
def test_who_takes_a_byte_a_moment_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(patience, "TAKE_LIMIT_S", 0.5)

    async def act(port: int, server: uvicorn.Server) -> None:
        slow = [asyncio.create_task(ask_slowly(port, path, 0.05)) for _ in range(6)]
        await wait_until(lambda: len(patience.PatientProtocol._waiting) > 0)
        assert await ask_page(port) == 200
        await wait_until(lambda: not server.server_state.connections and not server.server_state.tasks)
        assert not patience.PatientProtocol._waiting
        for task in slow:
            task.cancel()

    play(act)


def test_who_takes_enough_gets_all_however_long_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "TAKE_LIMIT_S", 1.5)
    monkeypatch.setattr(f"{__name__}.LARGE_BYTES", 5 << 20)

    async def act(port: int, server: uvicorn.Server) -> None:
        assert await ask_slowly(port, DOWNLOAD, 0.004, 1 << 18) > LARGE_BYTES

    play(act)


def test_what_all_leave_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_UNSENT_BYTES", 2 * LARGE_BYTES)

    async def act(port: int, server: uvicorn.Server) -> None:
        slow = []
        for count in range(1, 6):
            slow.append(asyncio.create_task(ask_slowly(port, DOWNLOAD, 0.05)))
            await wait_until(lambda count=count: server.server_state.total_requests == count)  # type: ignore[misc]
        held = [one.transport.get_write_buffer_size() for one in patience.PatientProtocol._waiting]
        assert sum(held) <= 2 * LARGE_BYTES
        assert len(held) in (2, 3)
        for task in slow:
            task.cancel()

    play(act)


def test_slow_readers_of_downloads_leave_their_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SLOW_AFTER_S", 0.1)
    monkeypatch.setattr(bounds, "HEAVY", re.compile("/stream"))

    async def act(port: int, server: uvicorn.Server) -> None:
        slow = [asyncio.create_task(ask_slowly(port, "/stream", 0.05)) for _ in range(2 * bounds.AT_ONCE)]
        await wait_until(lambda: len(patience.PatientProtocol._waiting) == len(slow))
        assert await asyncio.wait_for(ask_page(port, "/stream"), PATIENCE_S) == 200
        for task in slow:
            task.cancel()

    play(act)
