"""What a recording leaves as it is so that a job ends: modules that are not imported, groups that live on, threads that end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.signals import ending

MODULES = """
import sys, torch, torch.utils.data
before = set(sys.modules)
from collector import Profiler
profiler = Profiler(sys.argv[1])
print(sorted(name for name in set(sys.modules) - before if name.startswith("torch")))
profiler.analyse()
"""
GROUP = """
import glob, os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
if len(sys.argv) > 1:
    from collector import Profiler
    Profiler(sys.argv[1])

def main():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(5):
        model(torch.randn(2, 4)).sum().backward()
    dist.destroy_process_group()

main()
print([open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")].count("pt_gloo_runloop"))
"""
DAEMON = """
import sys, threading, time, torch
from collector import Profiler

going = threading.Event()

def train():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(10**9):
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        if step == 30:
            going.set()

Profiler(sys.argv[1], window=None)
threading.Thread(target=train, daemon=True).start()
going.wait(60)
print("ends", flush=True)
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)


def test_a_recording_imports_nothing_of_torch_that_the_script_has_not(tmp_path: Path) -> None:
    assert run(MODULES, tmp_path / "run").stdout == "[]\n"


@pytest.mark.slow
def test_a_process_group_is_kept_as_long_as_without_a_recording(tmp_path: Path) -> None:
    bare, recorded = run(GROUP), run(GROUP, tmp_path / "run")
    assert bare.stdout == "2\n", bare.stderr  # Dynamo, imported by DDP, has kept the group
    assert recorded.stdout == bare.stdout, recorded.stderr


def test_a_daemon_thread_that_trains_does_not_abort_the_end(tmp_path: Path) -> None:
    done = run(DAEMON, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_gloo_is_waited_for_until_its_threads_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [
        {"7": ("S", "1")},
        {"7": ("S", "2")},
        {"7": ("R", "2")},
        {"7": ("R", "2")},
        {"7": ("S", "2")},
        {"7": ("S", "2")},
    ]
    left = list(looks)
    monkeypatch.setattr(ending, "_has_gloo", lambda: True)
    monkeypatch.setattr(ending, "_look_at_gloo", lambda: left.pop(0))
    ending.wait_for_gloo()
    assert left == []


def test_gloo_that_never_rests_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look() -> dict[str, tuple[str, str]]:
        nonlocal looks
        looks += 1
        return {"7": ("R", str(looks))}

    monkeypatch.setattr(ending, "_has_gloo", lambda: True)
    monkeypatch.setattr(ending, "_look_at_gloo", look)
    monkeypatch.setattr(ending, "PATIENCE_S", 0.05)
    ending.wait_for_gloo()
    assert looks > 1


def test_where_there_is_no_gloo_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waited"))
    ending.wait_for_gloo()


def test_where_gloo_has_no_threads_of_that_name_it_is_given_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(ending, "_has_gloo", lambda: True)
    monkeypatch.setattr(ending, "_look_at_gloo", dict)
    monkeypatch.setattr(time, "sleep", waited.append)
    ending.wait_for_gloo()
    assert waited == [ending.UNNAMED_S]
