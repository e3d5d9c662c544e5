"""Odd requests and damaged caches end in an answer that helps, and leave the server as it was."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvicorn

from profiler_server.settings import Settings
from profiler_server.store.traces import name_run
from profiler_server.timeline.cache import CACHE_FOLDER, find_timelines
from profiler_server.web import patience
from profiler_server.web.app import create_app
from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run

API_TIMELINE = "/api/v1/runs/a/timeline"


def test_a_boundary_that_is_too_long_is_a_bad_request(tmp_path: Path) -> None:
    kind = {"content-type": "multipart/form-data; boundary=" + "b" * 5000}
    answer = Asker(tmp_path).ask("/api/v1/imports", "POST", kind, b"--b")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "bad_request")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["profiler", "__pycache__", "node_modules", "lost+found"])
def test_a_trace_never_becomes_a_run_that_the_list_skips(tmp_path: Path, name: str) -> None:
    build_run(tmp_path / name_run(f"{name}.json"), RunPlan(steps=3))
    assert Asker(tmp_path).ask("/api/v1/runs").json()["total"] == 1


def test_a_fault_is_told_without_its_traceback(web_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(web_base)
    monkeypatch.setattr(asker.app.state.services.catalog, "list_runs", lambda *_: 1 / 0)
    for path in ("/", "/api/v1/runs"):
        text = asker.ask(path).text
        assert "ZeroDivisionError" in text
        assert "or a damaged file of the run" in text
        assert "Traceback" not in text
        assert ".py" not in text


@pytest.fixture
def cached(tmp_path: Path) -> tuple[Asker, list[Path]]:
    """A run whose timeline is cached on the disk and open nowhere, and the files of the cache."""
    folder = build_run(tmp_path / "a", RunPlan(steps=6))
    asker = Asker(tmp_path)
    assert asker.ask(f"{API_TIMELINE}/meta").status_code == 200
    find_timelines()._open.clear()
    return asker, sorted(path for path in folder.rglob(f"{CACHE_FOLDER}/*/*") if path.is_file())


def test_a_single_bit_that_flips_in_the_cache_is_never_shown(cached: tuple[Asker, list[Path]]) -> None:
    asker, files = cached
    asks = ["meta", "search?q=conv", "slice?id=3"]
    whole = [asker.ask(f"{API_TIMELINE}/{ask}").text for ask in asks]
    for path in files:
        find_timelines()._open.clear()
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
        assert [asker.ask(f"{API_TIMELINE}/{ask}").text for ask in asks] == whole, path.name


async def _wait_for_end(base: Path, sent: list[bytes]) -> float:
    """Send pieces to a server, then one byte a moment; return how long it held the connection."""
    config = uvicorn.Config(create_app(Settings(base)), port=0, log_level="critical", http=patience.PatientProtocol)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s = time.monotonic()
    for piece in sent:
        writer.write(piece)
        await writer.drain()
    dribbling = asyncio.create_task(_dribble(writer))
    await asyncio.wait_for(_read_all(reader), 20)
    held_s = time.monotonic() - began_s
    dribbling.cancel()
    writer.close()
    server.should_exit = True
    await running
    return held_s


async def _read_all(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        return


async def _dribble(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "sent",
    [
        [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "],
        [b"GET /favicon.ico HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET / HTTP/1.1\r\nX-B: "],
        [b"POST /api/v1/runs/none/window HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n"],
    ],
    ids=["head", "second head", "refused body"],
)
def test_a_connection_that_dribbles_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[bytes]
) -> None:
    monkeypatch.setattr(patience, "HEAD_LIMIT_S", 0.5)
    assert asyncio.run(_wait_for_end(tmp_path, sent)) < 20


def test_a_static_file_whose_name_no_disk_takes_is_not_there(tmp_path: Path) -> None:
    answer = Asker(tmp_path).ask(f"/static/x/{'a' * 3000}")
    assert answer.status_code == 404
