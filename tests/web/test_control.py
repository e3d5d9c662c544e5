"""Asking a live run for a detailed window: the API, the form of the page, and who may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.control import WindowRequest, read_control
from collector.format.schema.layout import control_file
from tests.support.asking import ADDRESS, Asker
from tests.support.runs import RunPlan, build_run
from tests.support.tables import take_window

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def live(tmp_path: Path) -> Asker:
    build_run(tmp_path / "team/live", RunPlan(steps=14, state="recording"))
    build_run(tmp_path / "done", RunPlan(steps=14))
    return Asker(tmp_path)


def test_the_api_writes_the_runs_control_file(live: Asker, tmp_path: Path) -> None:
    answer = live.ask("/api/v1/runs/team/live/window", "POST", JSON, b'{"first": 500, "count": 5}')
    assert (answer.status_code, answer.json()["first"]) == (202, 500)
    assert read_control(tmp_path / "team/live") == WindowRequest(500, 5)


def test_the_form_goes_back_to_the_page_which_says_what_was_asked(live: Asker, tmp_path: Path) -> None:
    assert 'action="/runs/team/live/window' in live.ask("/runs/team/live/steps").text
    answer = live.ask("/runs/team/live/window", "POST", FORM, b"first=40&count=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/team/live/steps#window")
    assert "steps 40 to 41" in live.ask("/runs/team/live/steps").text


def test_a_form_without_a_first_step_asks_for_the_next_ones(live: Asker, tmp_path: Path) -> None:
    assert live.ask("/runs/team/live/window", "POST", FORM, b"first=&count=3").status_code == 303
    assert read_control(tmp_path / "team/live") == WindowRequest(0, 3)
    assert "the next 3 steps" in live.ask("/runs/team/live/steps").text


def test_the_page_awaits_a_window_until_it_was_taken(live: Asker, tmp_path: Path) -> None:
    run = tmp_path / "team/live"
    live.ask("/runs/team/live/window", "POST", FORM, b"first=40&count=2")
    assert "data-awaited" in live.ask("/runs/team/live/steps").text
    take_window(run, 40, 41)
    page = live.ask("/runs/team/live/steps").text
    assert "data-awaited" not in page
    assert "Taken last: steps 40 to 41." in page


def test_a_run_that_is_over_is_not_written_to(live: Asker, tmp_path: Path) -> None:
    answer = live.ask("/api/v1/runs/done/window", "POST", JSON, b'{"first": 5, "count": 5}')
    assert (answer.status_code, answer.json()["error"]["kind"]) == (409, "not_now")
    assert not control_file(tmp_path / "done").exists()
    assert "Look closer while it trains" not in live.ask("/runs/done/steps").text


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"first": -1}', b'{"first": 5, "count": 0}', b'{"first": 5, "count": 5000}']
)
def test_bad_numbers_are_refused(live: Asker, tmp_path: Path, body: bytes) -> None:
    answer = live.ask("/api/v1/runs/team/live/window", "POST", JSON, body)
    assert answer.status_code == 422
    assert not control_file(tmp_path / "team/live").exists()


def test_our_own_page_can_ask(live: Asker) -> None:
    answer = live.ask("/runs/team/live/window", "POST", {**FORM, "origin": ADDRESS}, b"first=40&count=2")
    assert answer.status_code == 303
