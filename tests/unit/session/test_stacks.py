"""A training whose functions are known: their stacks are found in the phase and in the stage in which they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from collector.format.run import Run
from collector.sidecar.process import recover_run
from profiler_server.diagnosis.measuring import measure_case
from tests.support import facts as make
from tests.support.forking import Forked
from tests.support.must import must
from tests.support.scripts import run_script
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux only")

_SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from collector import Profiler

def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

def decode(): busy(0.004)
def augment(sample): busy(0.003); return sample
def pick(): busy(0.003)
def mix(): busy(0.015)
def clip(grad): busy(0.015); return grad
def penalty(): busy(0.015)
def accuracy(): busy(0.02)
def prepare(): busy(0.015)

class Photos(Dataset):
    def __init__(self): self.transform = augment
    def __len__(self): return 100_000
    def __getitem__(self, index):
        decode()
        return self.transform(torch.full((8,), float(index)))

class Order(Sampler):
    def __len__(self): return 100_000
    def __iter__(self):
        for index in range(100_000):
            pick()
            yield index

def gather(samples):
    busy(0.015)
    return torch.stack(samples)

class Net(torch.nn.Linear):
    def forward(self, batch):
        mix()
        return super().forward(batch)

class Update(torch.optim.SGD):
    def step(self, closure=None):
        penalty()
        return super().step(closure)

def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net(8, 4)
    optimizer = Update(net.parameters(), lr=1e-6)
    loader = DataLoader(Photos(), 4, sampler=Order(), collate_fn=gather, num_workers=WORKERS)
    for step, batch in enumerate(loader):
        prepare()
        out = net(batch)
        out.register_hook(clip)
        optimizer.zero_grad()
        out.mean().backward()
        optimizer.step()
        accuracy()
        if step + 1 >= STEPS:
            break
    print([value.item().hex() for value in net.weight.flatten()])

if __name__ == "__main__":
    with Profiler("run", window=None, triggers=False, OPTIONS):
        main()
"""
_PHASES = {
    "prepare": "h2d",
    "mix": "forward",
    "clip": "backward",
    "penalty": "optimizer",
    "accuracy": "tail",
    "decode": "data_wait",
    "augment": "data_wait",
    "gather": "data_wait",
    "pick": "data_wait",
}
_STAGES = {"decode": "read", "augment": "transform", "gather": "collate"}


def _write(workers: int = 0, steps: int = 60, options: str = "stacks=True") -> str:
    return _SCRIPT.replace("WORKERS", str(workers)).replace("STEPS", str(steps)).replace("OPTIONS", options)


def _count(run: Run, column: str, *, of_workers: bool) -> dict[str, Counter[str | None]]:
    """Return for each known function how often it was seen in which phase or stage."""
    found: dict[str, Counter[str | None]] = {}
    for row in run.rank(0).table("stacks").to_pylist():
        names = [line.partition(" ")[0] for line in row["stack"].splitlines()]
        for name in _PHASES.keys() & set(names) if (row["replica"] >= 0) == of_workers else ():
            found.setdefault(name, Counter())[row[column]] += row["samples"]
    return found


def _assert_filed(found: dict[str, Counter[str | None]], expected: dict[str, str]) -> None:
    assert expected.keys() <= found.keys()
    for name, place in expected.items():
        right, whole = found[name][place], found[name].total()
        # A sample lies beside its phase where the thread was taken off its processor just there.
        assert right >= 0.8 * whole - 1, (name, found[name])


def test_functions_of_the_training_thread_are_filed_by_phase_and_stage(tmp_path: Path) -> None:
    run_script(tmp_path, _write())
    run = Run(tmp_path / "run")
    (signal,) = (each for each in run.rank(0).manifest.signals if each.name == "stacks")
    assert signal.state == "on", signal.reason
    _assert_filed(_count(run, "phase", of_workers=False), _PHASES)
    _assert_filed(_count(run, "stage", of_workers=False), _STAGES)
    text = "\n".join(run.rank(0).table("stacks")["stack"].to_pylist())
    assert "/collector/" not in text


def test_functions_of_workers_are_filed_by_stage(tmp_path: Path) -> None:
    run_script(tmp_path, _write(workers=2))
    run = Run(tmp_path / "run")
    _assert_filed(_count(run, "stage", of_workers=True), _STAGES)
    found = _count(run, "phase", of_workers=False)
    assert "pick" in found
    assert not {"decode", "augment", "gather"} & found.keys()


def test_switched_off_nothing_is_read_and_the_training_computes_the_same(tmp_path: Path) -> None:
    printed = []
    for options in ("stacks=True", "stacks=False"):
        folder = tmp_path / options
        folder.mkdir()
        printed.append(run_script(folder, _write(steps=4, options=options)))
    assert printed[0] == printed[1]
    status = Run(tmp_path / "stacks=False" / "run").rank(0).status("stacks")
    assert (status.state, "option stacks " in status.reason) == ("off", True)


def test_what_was_written_outlives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_write(steps=100_000))
    with Forked([sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        folder = tmp_path / "run/profiler/rank_0/stacks"
        wait_for(lambda: any(folder.glob("*.parquet")))
        os.kill(process.pid, signal.SIGKILL)
    run = Run(tmp_path / "run")
    deadline = time.monotonic() + 60.0
    while run.rank(0).manifest.ended_unix_ns is None and time.monotonic() < deadline:
        recover_run(tmp_path / "run")
        time.sleep(0.2)
        run = Run(tmp_path / "run")
    assert run.rank(0).table("stacks").num_rows


def test_workers_that_are_spawned_are_read_too(tmp_path: Path) -> None:
    text = _write(workers=1, steps=15).replace("num_workers=1", 'num_workers=1, multiprocessing_context="spawn"')
    run_script(tmp_path, text)
    assert _count(Run(tmp_path / "run"), "stage", of_workers=True)


_GROWS_AND_WAITS = """
import time
import torch
from collector import Profiler

def walk(history):
    end = time.perf_counter() + 0.0004 * len(history)
    while time.perf_counter() < end:
        pass

def mix():
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        pass

def ask():
    time.sleep(0.015)

class Net(torch.nn.Linear):
    def forward(self, batch):
        mix()
        walk(history)
        return super().forward(batch)

torch.set_num_threads(1)
net, history = Net(8, 4), []
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
with Profiler("run", window=None, triggers=False, stacks=True):
    for step in range(100):
        loss = net(torch.ones(2, 8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        ask()
"""


def test_a_line_that_grows_and_one_that_waits_are_told_from_one_that_does_neither(tmp_path: Path) -> None:
    run_script(tmp_path, _GROWS_AND_WAITS)
    run = Run(tmp_path / "run")
    case = measure_case(run, run.rank(0))
    assert case is not None
    assert case.lines is not None
    spots = {spot.function: spot for spot in case.lines.hotspots}
    titles = [found.text.title for found in make.find(case, "hot_line")]
    assert {"walk() takes longer with every step", "ask() waits, and computes nothing"} == set(titles)
    kept = spots["mix"].course
    assert kept is not None
    assert kept.growth_ns < must(spots["walk"].course).growth_ns / 2
    assert must(kept.asleep_frac) < 0.3 < 0.7 < must(must(spots["ask"].course).asleep_frac)


_FED_BY_A_THREAD = """
import queue, threading, time
import torch
from collector import Profiler

def decode():
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
    return torch.ones(2, 8)

def feed(batches):
    while True:
        batches.put(decode())

def watch():
    while True:
        time.sleep(0.05)

torch.set_num_threads(1)
net, batches = torch.nn.Linear(8, 4), queue.Queue(2)
for task in (lambda: feed(batches), watch):
    threading.Thread(target=task, daemon=True).start()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
with Profiler("run", window=None, triggers=False, stacks=True):
    for step in range(150):
        loss = net(batches.get()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="threads do not hold the system's number")
def test_a_function_that_a_thread_runs_while_the_step_waits_for_it_is_named(tmp_path: Path) -> None:
    run_script(tmp_path, _FED_BY_A_THREAD)
    run = Run(tmp_path / "run")
    case = measure_case(run, run.rank(0))
    assert case is not None
    (title, *_) = [found.text.title for found in make.find(case, "hot_line")]
    assert title == "The step waits while other threads run decode()"
    assert "watch" not in {spot.function for spot in must(case.lines).hotspots}


_TAKES_PARTS = """
import torch
from collector import Profiler

class Cell(torch.nn.Linear):
    def forward(self, series):
        driven = super().forward(series)
        state, states = torch.zeros(512, 64), []
        for date in range(40):
            state = torch.tanh(driven[date] + state)
            states.append(state)
        return torch.stack(states)

torch.set_num_threads(1)
net = Cell(8, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
with Profiler("run", window=(30, 10), triggers=False, stacks=True):
    for step in range(400):
        loss = net(torch.ones(40, 512, 8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_an_index_in_a_loop_is_named_by_its_gradient(tmp_path: Path) -> None:
    run_script(tmp_path, _TAKES_PARTS)
    run = Run(tmp_path / "run")
    case = must(measure_case(run, run.rank(0)))
    (spot,) = (spot for spot in must(case.lines).hotspots if spot.function == "Cell.forward")
    most = must(spot.work).operators[0]
    assert (most.name, most.backward_ns > 10 * most.mean_ns) == ("aten::select", True)
    assert 8 <= most.calls <= 41
    assert "parts of a tensor" in make.find(case, "hot_line")[0].text.title
