"""A detailed window that is asked for while the training runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from collector import open_run
from collector.format.run import Run
from collector.format.schema.layout import events_path, rank_path
from collector.notes import WORDS_FILE
from collector.ring.windows import Order, send_order
from tests.support.recording import record

ROOT = Path(__file__).parents[3]
LIVE = """
import itertools, sys, time, torch
from pathlib import Path
from collector import Profiler
from collector.format.schema.control import WindowRequest, write_control
torch.set_num_threads(1)
profiler = Profiler(sys.argv[1], window=(2, 1), triggers=False)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began_s = time.monotonic()
for step in itertools.count(1):
    if step == 20:
        write_control(Path(sys.argv[1]), WindowRequest(0, 2))
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    windows = len(list(Path(sys.argv[1]).glob("profiler/rank_0/events/window-*.note.json")))
    if windows > 1 or time.monotonic() > began_s + 90:
        break
profiler.analyse()
"""


def train_with_orders(path: Path, orders: dict[int, Order], steps: int = 14) -> Run:
    """Train, sending each order before the step of that number; the option's own window is steps 2 and 3."""
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(steps * 8, 16))

    def loop() -> None:
        for number, (batch,) in enumerate(torch.utils.data.DataLoader(data, batch_size=8), 1):
            if number in orders:
                send_order(events_path(rank_path(path, 0)) / WORDS_FILE, orders[number])
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    return record(path, loop, window=(2, 2)).run


def list_windows(run: Run) -> list[tuple[int, int, str]]:
    return [(window.first_step, window.last_step, window.trigger) for window in run.rank().manifest.windows]


def test_windows_are_taken_one_after_the_other(tmp_path: Path) -> None:
    run = train_with_orders(tmp_path, {4: Order(6, 2), 9: Order(11, 1, "outlier")})
    assert list_windows(run) == [(2, 3, "option"), (6, 7, "control"), (11, 11, "outlier")]
    detailed = [row["step"] for row in run.table("steps").to_pylist() if row["detailed"] and row["kind"] == "train"]
    assert detailed == [2, 3, 6, 7, 11]


def test_a_step_that_has_passed_means_the_next_one(tmp_path: Path) -> None:
    assert list_windows(train_with_orders(tmp_path, {6: Order(1, 2)}))[1:] == [(7, 8, "control")]


def test_a_new_order_replaces_one_that_still_waits(tmp_path: Path) -> None:
    orders = {5: Order(100, 2), 7: Order(9, 2)}
    assert list_windows(train_with_orders(tmp_path, orders))[1:] == [(9, 10, "control")]


def test_an_order_does_not_change_the_window_that_is_open(tmp_path: Path) -> None:
    assert list_windows(train_with_orders(tmp_path, {3: Order(8, 1)})) == [(2, 3, "option"), (8, 8, "control")]


def test_the_file_of_a_running_job_re_targets_its_window(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIVE, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "USDT" not in done.stderr
    (option, asked) = open_run(tmp_path).rank().manifest.windows
    assert (option.first_step, asked.trigger) == (2, "control")
    assert asked.first_step >= 20
    assert asked.last_step - asked.first_step == 1
