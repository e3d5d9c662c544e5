"""Ask an app without a network, as a browser on this machine would."""

from __future__ import annotations

import asyncio
import html
import re
import time
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from profiler_server.settings import Settings
from profiler_server.web.app import create_app

ADDRESS = "http://127.0.0.1:8080"
PATIENCE_S = 120.0


class Asker:
    """`ask("/path")` sends one request. A path is sent as it stands: dots and escapes are not tidied away."""

    def __init__(self, base_dir: Path, settings: Settings | None = None) -> None:
        self.app: FastAPI = create_app(settings or Settings(base_dir))

    def ask(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
    ) -> httpx.Response:
        return asyncio.run(self._ask(path, method, headers or {}, body))

    async def _ask(self, path: str, method: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            url = httpx.URL(ADDRESS).copy_with(raw_path=path.encode())
            return await client.request(method, url, headers=headers, content=body)


def wait_for_import(asker: Asker, answer: httpx.Response) -> dict[str, Any]:
    """Return the job of an import that was accepted once it has ended, or as it is when patience has."""
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    deadline = time.monotonic() + PATIENCE_S
    while job["state"] not in ("done", "failed") and time.monotonic() < deadline:
        time.sleep(0.05)
        job = asker.ask(f"/api/v1/imports/{job['id']}").json()
    return job


def read_words(text: str) -> str:
    """Return what a person reads of a page: its text without tags, scripts and repeated spaces."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", shown)).split())
