"""Clients that take their answer a byte at a time hold neither memory nor places for long, over real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from profiler_server.web import bounds, patience
from profiler_server.web.bounds import Crowding

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
