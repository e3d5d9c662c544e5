"""Headers, hosts, bounds and the token: what every answer carries and what is refused before anything is read."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import UsageError
from profiler_server.settings import Settings
from profiler_server.web.guard import CONTENT_POLICY
from profiler_server.web.serving import describe_start, ensure_token
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


def test_the_library_of_charts_is_sent_packed_to_all_who_take_it(asker: Asker) -> None:
    path = "/static/x/vendor/plotly/plotly-cartesian.min.js"
    packed, plain = (asker.ask(path, headers={"Accept-Encoding": coding}) for coding in ("gzip", "identity"))
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2


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


LINK_TOKEN = "a-token-of-the-test-0123456789"
WRONG = ("", "a", LINK_TOKEN[:-1], LINK_TOKEN + "x", LINK_TOKEN.upper())


@pytest.fixture(scope="module")
def network(web_base: Path) -> Asker:
    return Asker(web_base, Settings(web_base, host="0.0.0.0", token=LINK_TOKEN))


@pytest.mark.parametrize("path", ["/", "/runs/healthy/", "/api/v1/runs", "/nowhere", "/api/v1/openapi.json"])
def test_without_the_token_a_network_server_shows_nothing(network: Asker, path: str) -> None:
    for headers in ({}, *({"authorization": f"Bearer {wrong}"} for wrong in WRONG)):
        answer = network.ask(path, headers=headers)
        assert answer.status_code == 401
        assert "healthy" not in answer.text.replace(path, "")
        assert answer.headers["content-security-policy"]
        assert answer.headers["www-authenticate"] == "Bearer"
    if path.startswith("/api"):
        assert answer.json()["error"]["kind"] == "token_missing"


def test_a_program_sends_the_token_in_a_header(network: Asker) -> None:
    assert network.ask("/api/v1/runs", headers={"authorization": f"Bearer {LINK_TOKEN}"}).json()["total"] > 0
    assert network.ask("/api/v1/runs", headers={"authorization": f"Basic {LINK_TOKEN}"}).status_code == 401
    assert network.ask(f"/api/v1/runs?token={LINK_TOKEN}").status_code == 401


def test_the_link_is_exchanged_for_a_cookie_and_leaves_the_address(network: Asker) -> None:
    answer = network.ask(f"/runs/healthy/steps?steps=1-3&token={LINK_TOKEN}&rank=0")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/healthy/steps?steps=1-3&rank=0")
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    sent = {"cookie": f"{cookie.key}={cookie.value}"}
    assert network.ask("/runs/healthy/", headers=sent).status_code == 200
    assert network.ask("/api/v1/runs", headers=sent).status_code == 200
    assert network.ask("/?token=old", headers=sent).headers["location"] == "/"
    assert network.ask("/", headers={"cookie": f"{cookie.key}=x"}).status_code == 401


@pytest.mark.parametrize("wrong", ["", "a", LINK_TOKEN + "x", "%C3%A9", "%ff%00"])
def test_a_wrong_link_sets_no_cookie(network: Asker, wrong: str) -> None:
    answer = network.ask(f"/?token={wrong}")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_link_that_is_clicked_in_another_site_leads_on_with_the_cookie(network: Asker) -> None:
    clicked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = network.ask(f"/?token={LINK_TOKEN}", headers=clicked)
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0; url=/")
    assert LINK_TOKEN in answer.headers["set-cookie"]


def test_the_link_cannot_lead_to_another_host(network: Asker) -> None:
    assert network.ask(f"//evil.example/?token={LINK_TOKEN}").headers["location"] == "/evil.example/"


def test_what_tells_of_no_run_needs_no_token(network: Asker) -> None:
    assert network.ask("/api/v1/health").json() == {"status": "ok"}
    assert network.ask("/static/x/css/tokens.css").status_code == 200


def test_nothing_is_sent_to_a_server_whose_token_one_does_not_know(network: Asker, web_base: Path) -> None:
    before = sorted(web_base.iterdir())
    for path in ("/api/v1/imports", "/api/v1/runs/healthy/window"):
        assert network.ask(path, "POST", body=b"x" * 1000).status_code == 401
    assert sorted(web_base.iterdir()) == before


def test_a_loopback_server_asks_only_if_it_was_given_a_token(web_base: Path) -> None:
    assert Asker(web_base).ask("/").status_code == 200
    assert Asker(web_base, Settings(web_base, token=LINK_TOKEN)).ask("/").status_code == 401


def test_a_network_server_without_a_token_is_shut(web_base: Path) -> None:
    shut = Asker(web_base, Settings(web_base, host="0.0.0.0"))
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer"}):
        assert shut.ask("/", headers=headers).status_code == 401
    assert shut.ask("/?token=").status_code == 401


def test_a_token_is_made_for_a_network_and_kept_out_of_what_is_logged(tmp_path: Path) -> None:
    first, second = (ensure_token(Settings(tmp_path, host="0.0.0.0")) for _ in range(2))
    assert len(first.token) >= 32
    assert first.token != second.token
    assert first.token not in repr(first)
    assert ensure_token(Settings(tmp_path)).token == ""
    assert ensure_token(Settings(tmp_path, token=LINK_TOKEN)).token == LINK_TOKEN


@pytest.mark.parametrize("token", ["short", "with a space in it 12345", "x" * 300, "semicolon;in-it-0123456789"])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(UsageError, match="--token takes 16"):
        ensure_token(Settings(tmp_path, token=token))


def test_what_is_said_at_start_names_the_link_and_who_is_answered(tmp_path: Path) -> None:
    lines = describe_start(Settings(tmp_path, host="0.0.0.0", token=LINK_TOKEN, allowed_hosts=("runs.example",)), 8123)
    assert f"http://127.0.0.1:8123/?token={LINK_TOKEN}" in lines[0]
    assert "runs.example" in lines[2]
    assert len(describe_start(Settings(tmp_path), 8123)) == 1


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[str]]:
    """The lines that a real server on all addresses says at start."""
    command = [sys.executable, "-m", "profiler_server.cli", "--summary-base-dir", str(tmp_path)]
    command += ["--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield [process.stdout.readline() for _ in range(3)]
        process.terminate()


def test_the_link_that_a_server_prints_opens_it(started: list[str]) -> None:
    link = next(word for word in started[0].split() if word.startswith("http://127.0.0.1:"))
    assert "/?token=" in link
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(link, timeout=30) as answer:
        assert answer.status == 200
        assert "token" not in answer.url
