"""A job of two ranks that stands still is seen to while it does: by its pages, its report, and on its terminal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.report.building import build_report
from tests.support.asking import Asker

LIMIT_S = 120.0
JOB = """
import sys, time, torch
import torch.distributed as dist
from collector import Profiler
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def hold_everybody():
    time.sleep(10_000)
profiler = Profiler(sys.argv[1], window=None)
for step in range(1, 100):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    if step == 30 and dist.get_rank() == 1:
        hold_everybody()
    dist.all_reduce(model.weight.grad)
    optimizer.step()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """Two ranks, of which one sleeps before its thirtieth all-reduce; what they say is in `said0` and `said1`."""
    root = Path(__file__).parents[2]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PROFILER_HANG_S": "1"}
    environment = {**os.environ, **common, "PYTHONPATH": str(root)}
    ranks = []
    for rank in ("0", "1"):
        with open(tmp_path / f"said{rank}", "ab") as said:
            command = [sys.executable, "-c", JOB, str(tmp_path / "job")]
            ranks.append(subprocess.Popen(command, cwd=root, env={**environment, "RANK": rank}, stderr=said))
    yield tmp_path
    for process in ranks:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def test_a_job_of_which_one_rank_sleeps_says_so_while_it_does(job: Path) -> None:
    told = "Rank 1 has not entered allreduce 30"
    said = job / "said0"
    wait_for(lambda: told in said.read_text(encoding="utf-8"), lambda: said.read_text(encoding="utf-8"))
    (line,) = [line for line in said.read_text(encoding="utf-8").splitlines() if told in line]
    assert line.startswith(f"stepscope: {told} for ")
    assert "Rank 1 was last seen after backward of step 30" in line
    assert told not in (job / "said1").read_text(encoding="utf-8")
    asker = Asker(job)
    assert f"{told} (16.0 KiB)" in asker.ask("/runs/job/ranks").text
    assert f"{told} (16.0 KiB)" in asker.ask("/runs/job/").text
    assert "Stands still" in asker.ask("/").text
    report = build_report(open_run(job / "job"))
    assert (report["hang"]["missing"], report["hang"]["waiting"], report["hang"]["sequence"]) == ([1], [0], 30)
    seconds = next(
        line for line in asker.ask("/metrics").text.splitlines() if line.startswith("stepscope_standing_seconds{")
    )
    assert float(seconds.split()[-1]) > 1.0
    assert open_run(job / "job").rank(0).state == "recording"
