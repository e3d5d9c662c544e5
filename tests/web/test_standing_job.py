"""A job of four ranks that stands still is seen to while it does: by its pages, its report, and on its terminal."""

from __future__ import annotations

import os
import signal
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
import os, sys, time, torch
import torch.distributed as dist
from collector import Profiler
def train(rank):
    os.environ["RANK"] = str(rank)
    os.dup2(os.open(f"{sys.argv[1]}/said{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    profiler = Profiler(f"{sys.argv[1]}/job", window=None)
    for step in range(1, 100):
        optimizer.zero_grad()
        y = model(torch.randn(8, 64))
        dist.all_reduce(y.detach(), group=mesh["tp"].get_group())
        y.sum().backward()
        if step == 30 and rank == 3:
            hold_everybody()
        dist.all_reduce(model.weight.grad, group=mesh["dp"].get_group())
        optimizer.step()
def hold_everybody():
    time.sleep(10_000)
# All ranks from one process: PyTorch is imported once.
for rank in range(4):
    if not os.fork():
        train(rank)
        os._exit(0)
os.wait()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """A mesh of 2 x 2, of which rank 3 sleeps before its thirtieth gradients; what they say is in `said0` to `said3`."""
    root = Path(__file__).parents[2]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PROFILER_HANG_S": "1"}
    environment = {**os.environ, **common, "PYTHONPATH": str(root)}
    ranks = subprocess.Popen([sys.executable, "-c", JOB, str(tmp_path)], env=environment, start_new_session=True)
    yield tmp_path
    os.killpg(ranks.pid, signal.SIGKILL)
    ranks.wait()


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_a_job_of_which_one_rank_sleeps_says_so_while_it_does(job: Path) -> None:
    told = "Rank 3 has not entered allreduce 30"
    group = "of group dp (ranks 1, 3)"
    said = job / "said1"
    wait_for(lambda: told in read(said), lambda: [read(job / f"said{rank}") for rank in range(4)])
    (line,) = [line for line in read(said).splitlines() if told in line]
    assert line.startswith(f"stepscope: {told} {group} for ")
    assert "; 1 rank waits for it" in line
    assert "Rank 3 was last seen" in line  # where: what its recorder came to before it was starved
    assert not any("has not entered" in read(job / f"said{rank}") for rank in (0, 2, 3))
    asker = Asker(job)
    assert f"{told} (16.0 KiB) {group}" in asker.ask("/runs/job/ranks").text
    assert f"{told} (16.0 KiB) {group}" in asker.ask("/runs/job/").text
    assert "Stands still" in asker.ask("/").text
    report = build_report(open_run(job / "job"))
    found = report["hang"]
    assert (found["missing"], found["waiting"], found["sequence"], found["group"]) == ([3], [1], 30, "dp")
    seconds = next(
        line for line in asker.ask("/metrics").text.splitlines() if line.startswith("stepscope_standing_seconds{")
    )
    assert float(seconds.split()[-1]) > 1.0
    assert open_run(job / "job").rank(0).state == "recording"
