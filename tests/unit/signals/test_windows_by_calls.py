"""Detailed windows of runs that only infer."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import collector
from collector.context.calls import MANY_CALLS, has_optimizer
from collector.format.run import Run
from collector.signals import window as module
from collector.signals.window import PATIENCE_S
from tests.support import forking
from tests.support.recording import record
from tests.unit.signals.test_window import MODEL, find_signal, list_windows, train


def infer_by_loader(batches: int) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(8 * batches, 16))
    with torch.inference_mode():
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
            MODEL(batch)


def infer_by_calls(calls: int) -> None:
    with torch.inference_mode():
        for _ in range(calls):
            MODEL(torch.randn(8, 16))


def infer_by_marks(batches: int) -> None:
    with torch.inference_mode():
        for _ in range(batches):
            with collector.record("inference"):
                MODEL(torch.randn(8, 16))
                MODEL(torch.randn(8, 16))


@pytest.mark.parametrize("loop", [infer_by_loader, infer_by_calls, infer_by_marks])
@pytest.mark.parametrize(("asked", "taken"), [((1, 9), (1, 9)), ((10, 3), (10, 12))])
def test_windows_open_and_close_by_calls_where_nothing_trains(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop: Callable[[int], None],
    asked: tuple[int, int],
    taken: tuple[int, int],
) -> None:
    monkeypatch.setattr(module, "has_optimizer", bool)  # other tests leave some
    run = record(tmp_path, lambda: loop(30), window=asked).run
    assert [window[:2] for window in list_windows(run)] == [taken]
    steps = run.table("operators")["step"].unique().to_pylist()
    assert sorted(step for step in steps if step is not None) == [*range(taken[0], taken[1] + 1)]


def test_a_call_carries_the_collections_in_it_and_none_between_calls(tmp_path: Path) -> None:
    class Collecting(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gc.collect()
            return x

    def loop(model: torch.nn.Module, between: Callable[[], object]) -> None:
        with torch.inference_mode():
            for _ in range(20):
                model(torch.randn(8, 16))
                between()

    gc.disable()
    try:
        inside = record(tmp_path / "in", lambda: loop(Collecting(), bool), window=None)
        outside = record(tmp_path / "out", lambda: loop(MODEL, gc.collect), window=None)
    finally:
        gc.enable()
    calls = [row for row in inside.rows if row["kind"] == "eval"]
    assert len(calls) >= 15
    assert all(0 < row["gc_ns"] <= row["duration_ns"] for row in calls)
    assert [row["gc_ns"] for row in outside.rows if row["kind"] == "eval" and row["gc_ns"]] == []
    assert any(row["gc_ns"] for row in outside.rows if row["kind"] == "rest")


def test_a_run_that_infers_says_which_call_was_its_last(tmp_path: Path) -> None:
    signal = find_signal(record(tmp_path, lambda: infer_by_calls(9), window=(20, 3)).run)
    assert "ended after call 9, before the detailed window that was to open at call 20" in signal.reason


def test_calls_before_a_training_take_no_window_of_it(tmp_path: Path) -> None:
    def loop() -> None:
        optimizer = torch.optim.SGD(MODEL.parameters(), 0.01)
        infer_by_loader(20)
        train()
        optimizer.zero_grad()

    run = record(tmp_path, loop, window=(3, 2)).run
    assert [window[:2] for window in list_windows(run)] == [(3, 4)]


@pytest.mark.parametrize(("first", "taken"), [(2, (2, 4)), (10, (13, 15))])
def test_a_window_of_calls_is_dropped_where_the_run_trains_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, taken: tuple[int, int]
) -> None:
    monkeypatch.setattr(module, "has_optimizer", bool)

    def loop() -> None:
        infer_by_calls(20)
        train(25)

    run = record(tmp_path, loop, window=(first, 3)).run
    windows = list_windows(run)
    assert [window[:2] for window in windows] == [taken]
    steps = {step for step in run.table("operators")["step"].to_pylist() if step is not None}
    assert steps == {*range(taken[0], taken[1] + 1)}


def test_only_the_calls_of_a_window_carry_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_optimizer", bool)
    recorded = record(tmp_path, lambda: infer_by_calls(30), window=(10, 3))
    calls = [row for row in recorded.rows if row["kind"] == "eval"]
    assert [number for number, row in enumerate(calls, 1) if row["detailed"]] == [10, 11, 12]
    assert all(row["duration_ns"] == row["forward_ns"] for row in calls)


def test_many_calls_before_a_training_leave_its_window_where_it_was_asked_for(tmp_path: Path) -> None:
    def loop() -> None:
        infer_by_calls(MANY_CALLS + 16)
        train(20)

    run = record(tmp_path, loop, window=(10, 3)).run
    assert [window[:2] for window in list_windows(run)] == [(10, 12)]


def test_an_optimizer_is_known_without_a_walk_over_the_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    class Optimizer:
        def step(self) -> None: ...

    monkeypatch.setattr(torch.optim, "Optimizer", Optimizer)
    monkeypatch.setattr(gc, "get_objects", None)
    assert not has_optimizer()
    torch.optim.SGD(MODEL.parameters(), 0.01)
    monkeypatch.undo()
    assert has_optimizer()


AN_ACTOR = """
import queue, sys, threading, time, torch
from collector import Profiler

torch.set_num_threads(1)
calls = int(sys.argv[1])
batches, change = queue.Queue(calls), torch.nn.Linear(8, 8)

def prepare():
    with torch.no_grad():
        for _ in range(2 * calls):
            batches.put(change(torch.ones(4, 8)))

profiler = Profiler("run", window=(10, 3))
thread = threading.Thread(target=prepare)
thread.start()
while not batches.full():
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
longest = 0
for _ in range(2 * calls):
    began = time.perf_counter()
    model(batches.get()).sum().backward()
    before = time.perf_counter()
    optimizer.step()
    longest = max(longest, time.perf_counter() - before)
    optimizer.zero_grad()
thread.join()
profiler.analyse()
print(longest)
"""


@pytest.mark.parametrize(("calls", "wait_s"), [(11, 0), (65, 0), (65, 2)])
def test_a_thread_that_prepares_batches_by_a_model_harms_no_training(tmp_path: Path, calls: int, wait_s: float) -> None:
    done = forking.run([sys.executable, "-c", AN_ACTOR, str(calls), str(wait_s)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "disableProfiler" not in done.stderr
    assert float(done.stdout.split()[-1]) < PATIENCE_S
    assert [window[:2] for window in list_windows(Run(tmp_path / "run"))] == [(10, 12)]
