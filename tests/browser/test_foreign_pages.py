"""Pages of other sites, in a real browser, on a real server: they read nothing, change nothing, and start no work."""

from __future__ import annotations

import http.server
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from profiler_server.settings import Settings
from profiler_server.web.app import create_app
from tests.browser.foreign_pages import PAGES, write_page
from tests.support.runs import RunPlan, build_run
from tests.support.serving import serve_app

SETTLED_MS = 200
SITES = ("127.0.0.1", "evil.localhost")
"""Another port of the same host, and another host, which Chromium finds on this machine."""
OWN = "rebound.localhost"
"""A name that an attacker lets point to this machine."""


@dataclass
class Recorder:
    """An app around the app, which notes what other sites asked for and what they got."""

    app: ASGIApp
    foreign: list[tuple[str, str, int]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_foreign(scope):
                self.foreign.append((scope["method"], scope["path"], message["status"]))
            await send(message)

        await self.app(scope, receive, note)

    def _is_foreign(self, scope: Scope) -> bool:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        is_page = (headers.get("sec-fetch-dest"), headers.get("sec-fetch-mode")) == ("document", "navigate")
        if is_page and scope["method"] == "GET" and not scope["path"].startswith("/api/"):
            return False  # a link to a page may be followed
        origin = headers.get("origin", f"http://{headers['host']}")
        return (
            headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            or origin != f"http://{headers['host']}"
        )


@dataclass(frozen=True)
class Target:
    base: Path
    port: int
    recorder: Recorder

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def list_files(self) -> list[str]:
        names = (str(path.relative_to(self.base)) for path in self.base.rglob("*"))
        return sorted(name for name in names if ".stepscope-summaries" not in name)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    base = tmp_path_factory.mktemp("attacked")
    build_run(base / "healthy", RunPlan(steps=20))
    (base / "a.json").write_text('{"traceEvents": []}')
    recorder = Recorder(create_app(Settings(base)))
    with serve_app(recorder) as port:
        yield Target(base, port, recorder)


@pytest.fixture(scope="module")
def site(target: Target) -> Iterator[int]:
    """The port of a server whose pages attack."""

    class Attacker(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = urllib.parse.unquote(self.path.lstrip("/"))
            text = write_page(name, target.address) if name in PAGES else ""
            self.send_response(200 if text else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Attacker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@contextmanager
def visiting(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("host", SITES)
def test_a_page_of_another_site_reads_nothing_changes_nothing_and_starts_no_work(
    browser: Browser, target: Target, site: int, host: str
) -> None:
    before = target.list_files()
    target.recorder.foreign.clear()
    with visiting(browser) as context:
        for name in PAGES:
            page = context.new_page()
            page.goto(f"http://{host}:{site}/{urllib.parse.quote(name)}", wait_until="commit")
            page.wait_for_timeout(SETTLED_MS)
            assert page.evaluate("window.stolen.filter((text) => text.length)") == [], name
            page.close()
    assert [answer for answer in target.recorder.foreign if answer[2] < 400] == []
    assert len(target.recorder.foreign) > len(PAGES), "the pages have to reach the server"
    assert target.list_files() == before


@pytest.mark.slow
def test_a_name_that_an_attacker_lets_point_here_is_not_answered(browser: Browser, target: Target) -> None:
    with visiting(browser) as context:
        page = context.new_page()
        for path in ("/", "/runs/healthy/", "/api/v1/runs", "/static/x/js/shell.js"):
            answer = page.goto(f"http://{OWN}:{target.port}{path}")
            assert answer is not None
            assert answer.status == 421, path
            assert "healthy" not in answer.text()
