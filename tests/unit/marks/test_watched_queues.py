"""Queues that a script hands over to be watched."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import collector
from collector.format.schema.errors import UsageError
from tests.support.item_pipeline import run_pipeline
from tests.support.recording import record as record_loop


def test_queues_are_sampled_with_their_capacity(tmp_path: Path) -> None:
    run = record_loop(tmp_path, lambda: run_pipeline({"slow": 0.005, "fast": 0.0}, queue.Queue, threading.Thread)).run
    samples = run.frame("queues")
    assert set(samples.queue) == {"to slow", "to fast", "results"}
    assert set(samples.capacity) == {4}
    assert set(samples.loader) == {-1}
    depth = samples.groupby("queue", observed=True).depth.mean()
    assert depth["to slow"] > depth["to fast"]


def test_a_watched_queue_is_still_the_queue_that_it_was(tmp_path: Path) -> None:
    plain: queue.Queue[int] = queue.Queue(1)
    watched = collector.queue("jobs", plain)

    def loop() -> None:
        watched.put_nowait(1)
        with pytest.raises(queue.Full):
            watched.put(2, timeout=0.01)
        assert (watched.qsize(), watched.full(), watched.maxsize) == (1, True, 1)
        assert watched.get_nowait() == 1
        with pytest.raises(queue.Empty):
            watched.get(timeout=0.01)
        watched.task_done()

    record_loop(tmp_path, loop)
    loop()  # and while nothing is recorded


def test_without_the_data_pipeline_no_stage_and_no_queue_is_recorded(tmp_path: Path) -> None:
    def loop() -> None:
        with collector.record("kept"):
            run_pipeline({"decode": 0.0}, queue.Queue, threading.Thread)

    run = record_loop(tmp_path, loop, data_pipeline=False).run
    assert run.rank().status("stages").state == run.rank().status("queues").state == "off"
    assert run.frame("ranges").name.tolist() == ["kept"]


def test_what_is_no_queue_or_no_stage_is_refused() -> None:
    with pytest.raises(UsageError, match="get and put"):
        collector.queue("numbers", [1, 2])
    with pytest.raises(UsageError, match="watched already"):
        collector.queue("twice", collector.queue("once", queue.Queue()))
    with pytest.raises(UsageError, match="replica takes"):
        collector.stage("decode", replica=-1)


class FromQueue(IterableDataset[Any]):  # type: ignore[misc]
    """Samples that the script's own thread puts into a queue."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self) -> Any:
        return iter(self.samples.get, None)


def test_a_queue_behind_a_loader_leaves_the_batches_to_the_loader(tmp_path: Path) -> None:
    samples = collector.queue("samples", queue.Queue())
    for _ in range(24):
        samples.put(torch.ones(8))
    samples.put(None)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loop() -> None:
        for batch in DataLoader(FromQueue(samples), 4):
            loss = model(batch).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    recorded = record_loop(tmp_path, loop)
    assert recorded.kinds == {"train": 6}
    assert recorded.count("fetches") == [1] * 6
    assert recorded.count("batch") == list(range(6))
    assert set(recorded.count("loader")) == {0}
