"""A job of four ranks that stands still is seen to while it does: by its pages, its report, and on its terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.report.building import build_report
from tests.support.asking import Asker
from tests.support.standing import TOLD, hold_job
from tests.support.waiting import wait_for

LIMIT_S = 120.0


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    with hold_job(tmp_path) as folder:
        yield folder


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_a_job_of_which_one_rank_sleeps_says_so_while_it_does(job: Path) -> None:
    group = "of group dp (ranks 1, 3)"
    said = job / "said1"
    wait_for(lambda: TOLD in read(said), lambda: [read(job / f"said{rank}") for rank in range(4)])
    (line,) = [line for line in read(said).splitlines() if TOLD in line]
    assert line.startswith(f"stepscope: {TOLD} {group} for ")
    assert "; 1 rank waits for it" in line
    assert "Rank 3 was last seen" in line  # where: what its recorder came to before it was starved
    assert not any("has not entered" in read(job / f"said{rank}") for rank in (0, 2, 3))
    asker = Asker(job)
    assert f"{TOLD} (16.0 KiB) {group}" in asker.ask("/runs/job/ranks").text
    assert f"{TOLD} (16.0 KiB) {group}" in asker.ask("/runs/job/").text
    assert "Stands still" in asker.ask("/").text
    report = build_report(open_run(job / "job"))
    found = report["hang"]
    assert (found["missing"], found["waiting"], found["sequence"], found["group"]) == ([3], [1], 30, "dp")
    seconds = next(
        line for line in asker.ask("/metrics").text.splitlines() if line.startswith("stepscope_standing_seconds{")
    )
    assert float(seconds.split()[-1]) > 1.0
    assert open_run(job / "job").rank(0).state == "recording"
