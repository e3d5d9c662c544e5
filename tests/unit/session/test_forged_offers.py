"""Who may write into a recording cannot have it read a process that is none of the training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format.run import Run
from collector.format.schema.layout import events_path, rank_path
from collector.frames.posting import TRAINER
from tests.support.forking import Forked
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux only")

_FOREIGN = """
import sys, time
from pathlib import Path
from collector.frames.posting import TRAINER, post_thread

def my_private_function_PASSWORD_hunter2():
    post_thread(Path(sys.argv[1]), TRAINER, -1, 0)
    post_thread(Path(sys.argv[1]), 5, 0, 0)
    print("there", flush=True)
    while True:
        time.sleep(0.01)

my_private_function_PASSWORD_hunter2()
"""
_TRAINING = """
import sys, time
from pathlib import Path
import torch
from collector import Profiler

def busy(end): [None for _ in iter(lambda: time.perf_counter() < end, False)]
def before(): busy(time.perf_counter() + 0.01)
def after(): busy(time.perf_counter() + 0.01)

net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with Profiler("run", window=None, triggers=False, stacks=True):
    while not Path("enough").exists():
        after() if Path("later").exists() else before()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training in `tmp_path` that is recorded until a file `enough` is there."""
    (tmp_path / "training.py").write_text(_TRAINING)
    with Forked([sys.executable, "training.py"], cwd=tmp_path) as process:
        wait_for(lambda: any(tmp_path.glob("run/profiler/rank_0/stacks/*.parquet")))
        yield process
        process.kill()


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process of this user, which has offered its stack in a folder `offers`."""
    (tmp_path / "offers").mkdir()
    arguments = [sys.executable, "-c", _FOREIGN, str(tmp_path / "offers")]
    with Forked(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process
        process.kill()


def _finish(folder: Path, training: subprocess.Popen[bytes]) -> str:
    """End the training a while later; return all stacks that were read, of which some must be of what it did then."""
    time.sleep(1.0)
    (folder / "later").touch()
    time.sleep(3.0)
    (folder / "enough").touch()
    assert training.wait(120) == 0
    rank = Run(folder / "run").rank(0)
    assert {signal.name: signal.state for signal in rank.manifest.signals}["stacks"] == "on"
    stacks = "\n".join(rank.table("stacks")["stack"].to_pylist())
    assert "after" in stacks
    return stacks


def test_a_forged_offer_does_not_make_another_process_read(
    tmp_path: Path, training: subprocess.Popen[bytes], foreign: subprocess.Popen[str]
) -> None:
    events = events_path(rank_path(tmp_path / "run", 0))
    for offer in (tmp_path / "offers").iterdir():
        raw = json.loads(offer.read_text())
        assert raw["pid"] == foreign.pid
        # Under another name, as a link, and with the training's own number.
        (events / "frames-1-1.json").write_text(json.dumps(raw))
        (events / f"frames-2-{raw['replica']}.json").symlink_to(offer)
        (events / f"frames-3-{raw['replica']}.json").write_text(json.dumps({**raw, "pid": training.pid}))
        wait_for(lambda: not (events / "frames-1-1.json").exists())
    assert "PASSWORD" not in _finish(tmp_path, training)


def test_forged_addresses_end_nothing(tmp_path: Path, training: subprocess.Popen[bytes]) -> None:
    events = events_path(rank_path(tmp_path / "run", 0))
    for number, address in enumerate((0, 8, -1, 1 << 62, (1 << 64) - 8, 1 << 80, id(events))):
        for replica in (TRAINER, number):
            forged = {"pid": training.pid, "thread": address, "replica": replica, "loader": 0}
            (events / f"frames-{number}-{abs(replica)}.json").write_text(json.dumps(forged))
    assert "before" in _finish(tmp_path, training)


def test_a_pipe_and_a_huge_offer_do_not_hold_the_recorder_up(tmp_path: Path, training: subprocess.Popen[bytes]) -> None:
    events = events_path(rank_path(tmp_path / "run", 0))
    os.mkfifo(events / "frames-0-1.json")
    with (events / "frames-0-2.json").open("wb") as file:
        file.truncate(1 << 40)
    assert "before" in _finish(tmp_path, training)
