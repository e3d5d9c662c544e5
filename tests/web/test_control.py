"""Asking a live run for a detailed window: the API, the form of the page, and who may not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema.control import WindowRequest, read_control
from collector.format.schema.layout import control_file
from tests.support.asking import ADDRESS, Asker
from tests.support.forking import ROOT, Forked
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


# It trains until the window that the form asked for is on disk. A loaded machine opens others, for steps that stand out.
JOB = """
import pathlib, sys, time, torch
from collector import Profiler
from collector.ring.windows import find_windows, read_window
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Profiler(sys.argv[1], window=(2, 1)):
    events = pathlib.Path(sys.argv[1]) / "profiler/rank_0/events"
    end = time.monotonic() + 300
    while time.monotonic() < end and "control" not in [read_window(note).trigger for note in find_windows(events)]:
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        time.sleep(0.01)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", JOB, str(tmp_path / "job")]
    process = Forked(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def wait_for_form(asker: Asker, job: subprocess.Popen[str]) -> None:
    while "Look closer while it trains" not in asker.ask("/runs/job/steps").text:
        assert job.poll() is None, job.communicate()[1]
        time.sleep(0.2)


def test_a_running_job_takes_the_window_that_the_form_asks_for(job: subprocess.Popen[str], tmp_path: Path) -> None:
    asker = Asker(tmp_path)
    wait_for_form(asker, job)
    assert asker.ask("/runs/job/window", "POST", FORM, b"first=1&count=2").status_code == 303
    errors = job.communicate(timeout=600)[1]
    assert job.returncode == 0, errors
    window = next(entry for entry in open_run(tmp_path / "job").rank().manifest.windows if entry.trigger == "control")
    assert window.last_step == window.first_step + 1
    page = asker.ask("/runs/job/steps").text
    assert "asked for while the run recorded" in page
    assert f"{window.first_step}–{window.last_step}" in page
