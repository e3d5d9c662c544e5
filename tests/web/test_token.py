"""A server that others reach answers to those who bring its token, and to nobody else."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from collector.format.schema.errors import UsageError
from profiler_server.settings import Settings
from profiler_server.web.serving import describe_start, ensure_token
from tests.support.asking import Asker

TOKEN = "a-token-of-the-test-0123456789"
WRONG = ("", "a", TOKEN[:-1], TOKEN + "x", TOKEN.upper())


@pytest.fixture(scope="module")
def network(web_base: Path) -> Asker:
    return Asker(web_base, Settings(web_base, host="0.0.0.0", token=TOKEN))


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
    assert network.ask("/api/v1/runs", headers={"authorization": f"Bearer {TOKEN}"}).json()["total"] > 0
    assert network.ask("/api/v1/runs", headers={"authorization": f"Basic {TOKEN}"}).status_code == 401
    assert network.ask(f"/api/v1/runs?token={TOKEN}").status_code == 401


def test_the_link_is_exchanged_for_a_cookie_and_leaves_the_address(network: Asker) -> None:
    answer = network.ask(f"/runs/healthy/steps?steps=1-3&token={TOKEN}&rank=0")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/healthy/steps?steps=1-3&rank=0")
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    sent = {"cookie": f"{cookie.key}={cookie.value}"}
    assert network.ask("/runs/healthy/", headers=sent).status_code == 200
    assert network.ask("/api/v1/runs", headers=sent).status_code == 200
    assert network.ask("/?token=old", headers=sent).headers["location"] == "/"
    assert network.ask("/", headers={"cookie": f"{cookie.key}=x"}).status_code == 401


@pytest.mark.parametrize("wrong", ["", "a", TOKEN + "x", "%C3%A9", "%ff%00"])
def test_a_wrong_link_sets_no_cookie(network: Asker, wrong: str) -> None:
    answer = network.ask(f"/?token={wrong}")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_link_that_is_clicked_in_another_site_leads_on_with_the_cookie(network: Asker) -> None:
    clicked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = network.ask(f"/?token={TOKEN}", headers=clicked)
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0; url=/")
    assert TOKEN in answer.headers["set-cookie"]


def test_the_link_cannot_lead_to_another_host(network: Asker) -> None:
    assert network.ask(f"//evil.example/?token={TOKEN}").headers["location"] == "/evil.example/"


def test_what_tells_of_no_run_needs_no_token(network: Asker) -> None:
    assert network.ask("/api/v1/health").json() == {"status": "ok"}
    assert network.ask("/static/x/css/tokens.css").status_code == 200


def test_nothing_is_sent_to_a_server_whose_token_one_does_not_know(network: Asker, web_base: Path) -> None:
    before = sorted(web_base.iterdir())
    for path in ("/api/v1/imports", "/api/v1/traces/imports", "/api/v1/runs/healthy/window"):
        assert network.ask(path, "POST", body=b"x" * 1000).status_code == 401
    assert sorted(web_base.iterdir()) == before


def test_a_loopback_server_asks_only_if_it_was_given_a_token(web_base: Path) -> None:
    assert Asker(web_base).ask("/").status_code == 200
    assert Asker(web_base, Settings(web_base, token=TOKEN)).ask("/").status_code == 401


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
    assert ensure_token(Settings(tmp_path, token=TOKEN)).token == TOKEN


@pytest.mark.parametrize("token", ["short", "with a space in it 12345", "x" * 300, "semicolon;in-it-0123456789"])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(UsageError, match="--token takes 16"):
        ensure_token(Settings(tmp_path, token=token))


def test_what_is_said_at_start_names_the_link_and_who_is_answered(tmp_path: Path) -> None:
    lines = describe_start(Settings(tmp_path, host="0.0.0.0", token=TOKEN, allowed_hosts=("runs.example",)), 8123)
    assert f"http://127.0.0.1:8123/?token={TOKEN}" in lines[0]
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
