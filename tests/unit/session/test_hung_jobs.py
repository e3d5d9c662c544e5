"""A job of several ranks that hangs and is killed: which rank never entered which collective, and where it was."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.hangs.blame import Stop
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.diagnosis.end_sentences import describe_end
from tests.support.forking import ROOT, Forked
from tests.support.ranks import meet
from tests.support.waiting import wait_for

LIMIT_S = 120
SCRIPT = """
import sys, threading, time, torch
import torch.distributed as dist
from torch import nn
from pathlib import Path
from collector import Profiler
from tests.support import shapes
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(64, 64)
optimizer = shapes.sgd(model)
profiler = Profiler(sys.argv[1], window=None)
def tell():
    time.sleep(3)
    Path(sys.argv[1], f"stuck{rank}").touch()
for step in range(1, 100):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    if step == 6:
        threading.Thread(target=tell, daemon=True).start()
        if rank == 1:
            time.sleep(10_000)
    dist.all_reduce(model.weight.grad)
    optimizer.step()
"""


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, of which one sleeps before its sixth all-reduce; both are killed when they have stood still a while."""
    path = tmp_path_factory.mktemp("hung")
    environment = meet(2)
    ranks = [
        Forked([sys.executable, "-c", SCRIPT, str(path)], cwd=ROOT, env={**environment, "RANK": str(rank)})
        for rank in (0, 1)
    ]
    try:
        wait_for(lambda: all((path / f"stuck{rank}").exists() for rank in (0, 1)))
    finally:
        for process in ranks:
            process.send_signal(signal.SIGKILL)
            process.wait()
    run = open_run(path)
    wait_for(lambda: all(run.rank(rank).state == "crashed" and run.rank(rank).is_recovered for rank in (0, 1)))
    return path


def test_the_rank_that_never_entered_the_collective_is_named_with_where_it_was(hung: Path) -> None:
    stop = find_end(open_run(hung))
    assert isinstance(stop, Stop)
    assert (stop.number, stop.name, stop.bytes) == (6, "allreduce", 64 * 64 * 4)
    assert (stop.waiting, [place.rank for place in stop.missing]) == ((0,), [1])
    assert describe_end(stop) == (
        "Rank 1 never entered collective 6 (allreduce, 16.0 KiB); 1 rank was waiting in it when "
        "the job ended. Rank 1 was after backward of step 6."
    )
