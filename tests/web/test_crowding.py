"""Heavy work is bounded: more of it waits, then is told to come again, while everything else is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from profiler_server.web import bounds
from profiler_server.web.bounds import Crowding

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
