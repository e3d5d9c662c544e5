"""A job that trains is asked through the page's form for a closer look, takes it, and the page says so."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format.run import open_run
from tests.support.asking import Asker
from tests.support.forking import ROOT, Forked

FORM = {"content-type": "application/x-www-form-urlencoded"}
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
