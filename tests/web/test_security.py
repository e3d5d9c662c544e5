"""Headers, hosts and bounds: what every answer carries and what is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.settings import Settings
from profiler_server.web.guard import CONTENT_POLICY
from tests.support.asking import Asker

EVERY_KIND = (
    "/",
    "/runs/healthy/",
    "/runs/none/",
    "/api/v1/runs",
    "/api/v1/runs/none",
    "/static/x/css/tokens.css",
    "/nowhere",
)


@pytest.mark.parametrize("path", EVERY_KIND)
def test_every_answer_carries_the_policy(asker: Asker, path: str) -> None:
    headers = asker.ask(path).headers
    assert headers["content-security-policy"] == CONTENT_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "cross-origin-opener-policy" not in headers  # it would cut off the window that a trace is handed to


def test_the_policy_allows_nothing_inline_and_no_other_host() -> None:
    assert CONTENT_POLICY.startswith("default-src 'none'")
    assert "unsafe" not in CONTENT_POLICY
    assert "http" not in CONTENT_POLICY


def test_an_answer_that_broke_carries_the_policy_too(web_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(web_base)
    monkeypatch.setattr(asker.app.state.services.catalog, "list_runs", lambda: 1 / 0)
    for path in ("/", "/api/v1/runs"):
        answer = asker.ask(path)
        assert answer.status_code == 500
        assert answer.headers["content-security-policy"] == CONTENT_POLICY


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example", ""])
def test_a_foreign_host_gets_nothing_from_a_loopback_server(asker: Asker, host: str) -> None:
    answer = asker.ask("/api/v1/runs", headers={"host": host})
    assert answer.status_code == 421
    assert "healthy" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:1234", "[::1]:8080", "LOCALHOST"])
def test_loopback_hosts_are_answered(asker: Asker, host: str) -> None:
    assert asker.ask("/api/v1/runs", headers={"host": host}).status_code == 200


def test_further_hosts_can_be_allowed_and_an_open_server_takes_all(web_base: Path) -> None:
    proxied = Asker(web_base, Settings(web_base, allowed_hosts=("runs.example",)))
    assert proxied.ask("/", headers={"host": "runs.example"}).status_code == 200
    opened = Asker(web_base, Settings(web_base, host="0.0.0.0"))
    assert opened.ask("/", headers={"host": "gpu-box:8080"}).status_code == 200


def test_a_change_asked_for_by_another_site_is_refused(asker: Asker) -> None:
    refused = asker.ask("/api/v1/runs", "POST", {"origin": "http://evil.example"})
    assert refused.status_code == 403
    own = asker.ask("/api/v1/runs", "POST", {"origin": "http://127.0.0.1:8080"})
    assert own.status_code == 405


@pytest.mark.parametrize(
    ("query", "status"),
    [("q=" + "a" * 9000, 414), ("q=" + "a" * 2500, 400), ("&".join(f"a{i}=1" for i in range(80)), 400)],
)
def test_queries_are_bounded(asker: Asker, query: str, status: int) -> None:
    assert asker.ask(f"/?{query}").status_code == status


def test_pages_are_not_stored_and_static_files_are_kept(asker: Asker) -> None:
    page = asker.ask("/")
    assert page.headers["cache-control"] == "no-store"
    address = page.text.split('href="')[1].split('"')[0]
    current = next(part for part in page.text.split('"') if part.endswith("css/tokens.css"))
    assert address.startswith("/")
    assert asker.ask(current).headers["cache-control"] == "public, max-age=31536000, immutable"
    assert asker.ask("/static/old/css/tokens.css").headers["cache-control"] == "no-cache"


def test_modules_have_a_script_type(asker: Asker) -> None:
    assert asker.ask("/static/x/js/shell.js").headers["content-type"].startswith("text/javascript")


def test_remote_clients_get_pages_packed_and_tiles_as_they_are(web_base: Path) -> None:
    app = Asker(web_base, Settings(web_base, host="0.0.0.0"))
    packed = {"accept-encoding": "gzip"}
    assert "content-encoding" not in app.ask("/runs/healthy/", headers=packed).headers  # loopback client
