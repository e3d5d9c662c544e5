"""A job of four ranks that stands still: a mesh of 2 x 2, of which rank 3 sleeps before its thirtieth gradients."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.forking import Forked
from tests.support.ranks import meet

_JOB = """
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
TOLD = "Rank 3 has not entered allreduce 30"
"""What rank 1, the only one that waits for it, says on its stderr."""


@contextmanager
def hold_job(folder: Path) -> Iterator[Path]:
    """Run the job, recorded to `job` below the folder, until the block ends; what its ranks say is in `said0` to `said3`."""
    ranks = Forked([sys.executable, "-c", _JOB, str(folder)], env={**meet(4), "PROFILER_HANG_S": "1"})
    try:
        yield folder
    finally:
        os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
