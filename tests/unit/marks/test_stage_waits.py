"""Waits of stages and of the step for what a stage hands on."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from statistics import median

import torch

import collector
from tests.support.recording import record as record_loop


def test_waits_inside_of_a_stage_are_not_work(tmp_path: Path) -> None:
    def loop() -> None:
        with collector.stage("decode", items=4) as stage:
            with stage.wait_input():
                time.sleep(0.02)
            time.sleep(0.005)
            with collector.stage("inner"):
                time.sleep(0.01)
            with stage.wait_output():
                time.sleep(0.03)
            stage.bytes = 1000

    rows = record_loop(tmp_path, loop).run.frame("stages")
    took_ms = rows.groupby(["stage", "kind"], observed=True).duration_ns.sum() / 1e6
    assert took_ms["decode", "input_wait"] >= 20
    assert took_ms["decode", "output_wait"] >= 30
    assert 5 <= took_ms["decode", "work"] < 15
    assert took_ms["inner", "work"] >= 10
    decode = rows[rows.stage == "decode"]
    assert (decode["items"].sum(), decode.bytes.sum(), decode.batch.nunique()) == (4, 1000, 1)


def test_a_wait_that_no_stage_took_is_not_the_next_runs(tmp_path: Path) -> None:
    frames = collector.queue("frames", queue.Queue(4))

    def wait() -> None:
        frames.put(None)
        frames.get()

    def work() -> None:
        with collector.stage("resize"):
            time.sleep(0.001)

    record_loop(tmp_path / "before", wait)
    rows = record_loop(tmp_path / "after", work).run.frame("stages")
    assert rows["kind"].tolist() == ["work"]


def test_a_step_that_waits_for_a_queue_waits_for_data(tmp_path: Path) -> None:
    batches = collector.queue("batches", queue.Queue(2))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def feed() -> None:
        for _ in range(12):
            with collector.stage("load"):
                time.sleep(0.02)
            batches.put(torch.ones(4, 8))

    def loop() -> None:
        thread = threading.Thread(target=feed)
        thread.start()
        for _ in range(12):
            loss = model(batches.get()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        thread.join()

    recorded = record_loop(tmp_path, loop)
    assert recorded.kinds == {"train": 12}
    assert median(row["data_wait_ns"] for row in recorded.train[2:]) > 5_000_000  # of the 20 ms that a batch takes
    assert {row["loader"] for row in recorded.train} == {None}
