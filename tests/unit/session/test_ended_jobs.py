"""Real jobs of several ranks that fail: which rank left a collective out, and what the attempt before had ended by."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from collector.format.run import Run, open_run
from collector.format.schema.errors import TableMissingError
from profiler_server.report.brief import write_brief
from tests.support.forking import ROOT
from tests.support.ranks import meet
from tests.support.waiting import wait_for

LIMIT_S = 120
SKIPS = """
import os, sys, time, torch
import torch.distributed as dist
from collector import Profiler
def train(rank):
    os.environ["RANK"] = str(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    small, large = torch.ones(256), torch.ones(4096)
    with Profiler(sys.argv[1], window=None):
        for step in range(1, 41):
            model(torch.randn(8, 64)).sum().backward()
            if step != 31 or rank != 1:
                dist.all_reduce(small)
            dist.all_reduce(large)
            optimizer.step()
ranks = []
for rank in range(3):
    ranks.append(os.fork())
    if not ranks[-1]:
        train(rank)
        os._exit(0)
# As torchrun does: the first that fails ends the others.
failed, _ = os.wait()
time.sleep(0.1)
for rank in ranks:
    if rank != failed:
        os.kill(rank, 15)
        os.waitpid(rank, 0)
"""
RESTARTS = """
import os, sys, time, torch
from pathlib import Path
from collector import Profiler
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Profiler(sys.argv[1], window=None):
    while len(list(Path(sys.argv[1], "profiler").glob("rank_*"))) < 2:
        time.sleep(0.1)  # a rank that comes after another one has ended begins a run of its own
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        time.sleep(0.5)
        raise ConnectionError("connection refused")
    for step in range(1, 100):
        model(torch.randn(8, 8)).sum().backward()
        optimizer.step()
        if step == 25 and os.environ["RANK"] == "0":
            raise RuntimeError("planted")
        time.sleep(0.01)
"""


def launch(command: Sequence[str]) -> None:
    # How an interpreter ends is what is tested: no forks of one.
    subprocess.run(command, cwd=ROOT, env=meet(3), timeout=LIMIT_S, check=False)


def open_settled(path: Path) -> Run:
    """Open a run of a job that is over, once its recorders have written all that they know."""
    run = open_run(path)

    def is_settled() -> bool:
        with contextlib.suppress(TableMissingError):  # a short job can be over before its recorders have begun
            return all(run.rank(rank).manifest.ended_unix_ns for rank in run.ranks)
        return False

    wait_for(is_settled)
    return run


def test_a_rank_that_leaves_a_collective_out_is_named_although_another_one_is_aborted(tmp_path: Path) -> None:
    launch([sys.executable, "-c", SKIPS, str(tmp_path / "job")])
    told = write_brief(open_settled(tmp_path / "job"))[0]
    # A rank that is aborted within the very call has not listed it.
    who = "(rank 0|rank 2|ranks 0, 2)"
    assert re.match(rf"Rank 1 has left out allreduce 61 \(1\.00 KiB\), which {who} entered in step 31[.;]", told), told


@pytest.mark.slow
def test_a_job_of_torchrun_that_failed_twice_says_what_ended_its_first_attempt(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RESTARTS, encoding="utf-8")
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", str(script), str(tmp_path / "job")]
    launch([sys.executable, "-m", "torch.distributed.run", *options])
    (first,) = (tmp_path / "job" / "earlier").iterdir()
    open_settled(first)
    told = write_brief(open_settled(tmp_path / "job"))
    assert told[0].startswith("Attempt 2 of 2; attempt 1 ended after 25 steps: rank 0, RuntimeError: planted. ")
    assert told[-1] == f"Attempt 1: stepscope report {first}"
    manifest = open_run(first).manifest
    assert (manifest.attempt, manifest.job_id) == (1, open_run(tmp_path / "job").manifest.job_id)
