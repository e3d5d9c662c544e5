"""Stages and queues of a script's own: what each replica worked on and waited for, in threads and processes."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import collector
from collector.format.run import Run
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
