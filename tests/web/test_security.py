"""Headers, hosts and bounds: what every answer carries and what is refused before anything is read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profiler_server.settings import Settings
from profiler_server.web.guard import CONTENT_POLICY
from tests.support.asking import Asker

TOKEN = "0123456789abcdef-test"
BEARER = {"authorization": f"Bearer {TOKEN}"}
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


@pytest.mark.parametrize(
    "host",
    ["localhost:1@evil.example", "[localhost]evil.example", "[::1", "127.0.0.1:", "127.0.0.1:8080:1", "[::1]x:80"],
)
def test_what_is_no_host_is_not_taken_for_loopback(asker: Asker, host: str) -> None:
    assert asker.ask("/api/v1/runs", headers={"host": host}).status_code == 421


def test_further_hosts_can_be_allowed(web_base: Path) -> None:
    proxied = Asker(web_base, Settings(web_base, allowed_hosts=("runs.example", "Other.example:444")))
    for host in ("runs.example", "runs.example:443", "other.example"):
        assert proxied.ask("/", headers={"host": host}).status_code == 200
    assert proxied.ask("/", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("bound", ["0.0.0.0", "192.168.7.7", "127.0.0.2"])
def test_the_host_is_checked_wherever_a_server_listens(web_base: Path, bound: str) -> None:
    asker = Asker(web_base, Settings(web_base, host=bound, allowed_hosts=("runs.example",), token=TOKEN))
    for host, status in (("evil.example", 421), ("runs.example", 200), ("localhost", 200), (bound, 200)):
        if host != "0.0.0.0":
            assert asker.ask("/api/v1/runs", headers={"host": host, **BEARER}).status_code == status, host


def test_a_server_on_all_addresses_answers_to_its_own_name(web_base: Path) -> None:
    asker = Asker(web_base, Settings(web_base, host="0.0.0.0", token=TOKEN))
    assert asker.ask("/", headers={"host": f"{socket.gethostname()}:8080", **BEARER}).status_code == 200


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [(host, True) for host in ("127.0.0.2", "::1", "localhost", "::ffff:127.0.0.1")]
    + [(host, False) for host in ("0.0.0.0", "::", "10.1.1.1", "", "localhost.evil.example")],
)
def test_every_loopback_address_is_one(tmp_path: Path, host: str, is_loopback: bool) -> None:
    assert Settings(tmp_path, host=host).is_loopback == is_loopback


def test_headers_of_a_proxy_change_nothing(asker: Asker) -> None:
    forwarded = {"x-forwarded-host": "127.0.0.1", "x-forwarded-proto": "https", "x-forwarded-for": "127.0.0.1"}
    assert asker.ask("/", headers={"host": "evil.example", **forwarded}).status_code == 421
    own = {"origin": "https://127.0.0.1:8080", **forwarded}
    assert asker.ask("/api/v1/runs", "POST", own).status_code == 403


def test_the_page_of_an_allowed_name_may_come_by_https(web_base: Path) -> None:
    proxied = Asker(web_base, Settings(web_base, allowed_hosts=("runs.example",)))
    own = {"host": "runs.example", "origin": "https://runs.example"}
    assert proxied.ask("/api/v1/runs", "POST", own).status_code == 405
    assert proxied.ask("/api/v1/runs", "POST", {**own, "origin": "https://runs.example:8443"}).status_code == 403


FETCHES = {
    "image": ({"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, 403, 403),
    "frame": ({"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403, 403),
    "link": ({"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200, 403),
}


@pytest.mark.parametrize("kind", FETCHES)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_pages_and_load_nothing(asker: Asker, kind: str, site: str) -> None:
    headers, page, data = FETCHES[kind]
    given = {"sec-fetch-site": site, **headers}
    assert asker.ask("/runs/healthy/", headers=given).status_code == page
    assert asker.ask("/api/v1/runs/healthy/timeline/export", headers=given).status_code == data
    assert asker.ask("/api/v1/runs", headers={**given, "sec-fetch-site": "same-origin"}).status_code == 200


def test_a_web_socket_of_another_site_starts_no_work(asker: Asker) -> None:
    shake = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    for path in ("/", "/runs/healthy/", "/api/v1/runs/healthy/timeline/export"):
        assert asker.ask(path, headers={**shake, "origin": "http://127.0.0.1:9999"}).status_code == 403
        assert asker.ask(path, headers={**shake, "origin": "null"}).status_code == 403
        assert asker.ask(path, headers={"origin": "http://127.0.0.1:8080"}).status_code == 200


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
    app = Asker(web_base, Settings(web_base, host="0.0.0.0", token=TOKEN))
    packed = {"accept-encoding": "gzip", **BEARER}
    assert "content-encoding" not in app.ask("/runs/healthy/", headers=packed).headers  # loopback client


@pytest.mark.parametrize("headers", [{}, BEARER, {"origin": "http://elsewhere.example"}, {"host": "elsewhere.example"}])
@pytest.mark.parametrize("settings", [{}, {"host": "0.0.0.0", "token": TOKEN}])
@pytest.mark.parametrize("path", ["/", "/api/v1/runs", "/api/v1/health", "/static/x/css/tokens.css", "/runs/healthy/"])
def test_a_web_socket_is_closed_whoever_asks(
    web_base: Path, settings: dict[str, Any], headers: dict[str, str], path: str
) -> None:
    sent = _open_web_socket(Asker(web_base, Settings(web_base, **settings)), path, headers)
    assert [message["type"] for message in sent] == ["websocket.close"]


def _open_web_socket(asker: Asker, path: str, headers: dict[str, str]) -> Sequence[Any]:
    """Return all that the server sends to who opens a WebSocket."""
    sent: list[Any] = []
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1"} | headers).items()],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 5000),
        "subprotocols": [],
    }

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asker.app(scope, receive, send))
    return sent
