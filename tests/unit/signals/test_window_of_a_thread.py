"""A detailed window that another thread than the main one opens, and that is open when that thread ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from collector.format.run import open_run
from collector.format.schema.manifest import RankManifest

SCRIPT = """
import sys, threading, torch
from collector import Profiler

torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
done = threading.Event()

def train(steps):
    for batch in torch.utils.data.DataLoader([torch.ones(8)] * 4 * steps, batch_size=4):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

def train_and_stay():
    train(8)
    trained.set()
    while sys.argv[1] == "goes on" and not done.is_set():
        train(1)
    done.wait()

profiler = Profiler("run", window=(4, 50))
trained = threading.Event()
if sys.argv[1] == "ends":
    first = threading.Thread(target=train, args=(12,))
    first.start()
    first.join()
    profiler.analyse()
else:
    first = threading.Thread(target=train_and_stay)
    first.start()
    trained.wait()
    profiler.analyse()
    done.set()
    first.join()
"""


def run_script(folder: Path, case: str) -> RankManifest:
    command = [sys.executable, "-c", SCRIPT, case]
    environment = {**os.environ, "PROFILER_VERDICT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("stepscope:")] == []
    return open_run(folder / "run").rank().manifest


def test_a_window_is_saved_when_its_thread_ends(tmp_path: Path) -> None:
    (window,) = run_script(tmp_path, "ends").windows
    assert (window.first_step, window.last_step) == (4, 12)


def test_a_window_of_a_thread_that_trains_on_is_saved(tmp_path: Path) -> None:
    manifest = run_script(tmp_path, "goes on")
    assert [window.first_step for window in manifest.windows] == [4]
    assert next(one for one in manifest.signals if one.name == "window").state == "on"


def test_a_window_that_another_thread_closes_ends_with_its_own_thread(tmp_path: Path) -> None:
    manifest = run_script(tmp_path, "stays")
    assert manifest.windows == ()
    assert next(one for one in manifest.signals if one.name == "window").state == "failed"
