"""Stages, queues and waits of a script's own: what each replica worked on and waited for, in threads and processes."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import collector
from collector.format.run import Run
from collector.format.schema.errors import UsageError
from profiler_server.analysis.data.replicas import read_stages
from profiler_server.analysis.data.stages import summarize_own
from profiler_server.diagnosis.bottleneck import find_own_bottleneck
from tests.support.item_pipeline import ITEMS, run_pipeline
from tests.support.recording import record as record_loop


def find_limit(run: Run) -> str | None:
    return find_own_bottleneck(summarize_own(read_stages(run.rank(), None))).stage


def sum_ns(rows: pd.DataFrame, stage: str, kind: str) -> int:
    return int(rows[(rows.stage == stage) & (rows.kind == kind)].duration_ns.sum())


@pytest.mark.parametrize("limit", ["decode", "resize"])
def test_the_slow_stage_is_the_limit_and_the_others_wait_for_it(tmp_path: Path, limit: str) -> None:
    sleeps = {name: 0.008 if name == limit else 0.001 for name in ("decode", "resize")}
    run = record_loop(tmp_path, lambda: run_pipeline(sleeps, queue.Queue, threading.Thread)).run
    rows = run.frame("stages")
    assert find_limit(run) == limit
    assert sum_ns(rows, limit, "work") >= ITEMS * 8_000_000
    if limit == "decode":
        assert sum_ns(rows, "resize", "input_wait") > sum_ns(rows, "resize", "output_wait")
    else:
        assert sum_ns(rows, "decode", "output_wait") > sum_ns(rows, "decode", "input_wait")
    assert rows[rows.kind == "work"].groupby("stage", observed=True)["items"].sum().tolist() == [ITEMS, ITEMS]
    assert rows[rows.kind == "work"].cpu_ns.sum() < 0.5 * rows[rows.kind == "work"].duration_ns.sum()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_stages_in_processes_are_one_pipeline(tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    sleeps = {"decode": 0.01, "resize": 0.001}
    run = record_loop(tmp_path, lambda: run_pipeline(sleeps, context.Queue, context.Process)).run
    rows = run.frame("stages")
    assert set(rows.stage) == {"decode", "resize"}
    if method == "fork":  # processes that are spawned start seconds apart, and wait for each other meanwhile
        assert find_limit(run) == "decode"
    stages = summarize_own(read_stages(run.rank(), None))
    assert [(stage.name, stage.inputs, stage.outputs) for stage in stages] == [
        ("decode", ("to decode",), ("to resize",)),
        ("resize", ("to resize",), ("results",)),
    ]


def test_threads_without_a_replica_number_are_told_apart(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(5):
            with collector.stage("decode"):
                time.sleep(0.001)

    def loop() -> None:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rows = record_loop(tmp_path, loop).run.frame("stages")
    assert rows.groupby("replica")["items"].sum().to_dict() == {0: 5, 1: 5, 2: 5}


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
