"""Queues, stages, the stage that limits the step, and pipelines of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from collector.format import parts
from collector.format.intervals import Intervals, unite
from collector.format.parts import build_table_from_rows
from collector.format.run import RankRun
from profiler_server.analysis.data.queues import (
    QueueKey,
    add_received,
    list_queues,
    read_queues,
    sum_queues,
    summarize_queues,
    summarize_readiness,
    trace_by_step,
    trace_over_time,
)
from profiler_server.analysis.data.replicas import summarize_totals
from profiler_server.analysis.data.stages import select_own, summarize_own, summarize_stages
from profiler_server.diagnosis.bottleneck import find_own_bottleneck
from profiler_server.diagnosis.readings import read_bottleneck
from tests.support.cases import Plant, build_case_run, slow
from tests.support.runs import RunPlan


def _sample(step: int, depth: int, **columns: Any) -> dict[str, Any]:
    row = {"step": step, "start_ns": step * 10, "loader": 0, "queue": "worker_queue", "depth": depth, "capacity": 4}
    return row | columns


def _queues(*rows: dict[str, Any]) -> pa.Table:
    return parts.build_table_from_rows("queues", rows)


HOST = QueueKey(0, "worker_queue")


def test_queues_are_listed_host_side_first_and_the_users_last() -> None:
    queues = _queues(
        _sample(1, 0, loader=-1, queue="decoded"),
        _sample(1, 0, loader=1),
        _sample(1, 0, queue="pin_queue"),
        _sample(1, 0),
    )
    expected = (HOST, QueueKey(0, "pin_queue"), QueueKey(1, "worker_queue"), QueueKey(None, "decoded"))
    assert list_queues(queues) == expected


def test_a_step_that_fetched_twice_shows_the_lower_depth() -> None:
    trace = trace_by_step(_queues(_sample(2, 3), _sample(1, 4), _sample(2, 0), _sample(2, 9, loader=1)), HOST)
    assert (trace.steps.tolist(), trace.depths.tolist()) == ([1, 2], [4, 0])
    assert trace.capacity == 4


def test_a_batch_that_waits_behind_another_is_marked() -> None:
    trace = trace_over_time(
        _queues(
            _sample(1, 2, next_ready=False),
            _sample(2, 0, next_ready=False),
            _sample(3, 2, next_ready=True),
            _sample(4, 1),
        ),
        HOST,
    )
    assert trace.blocked.tolist() == [True, False, False, False]
    assert trace.starts_ns.tolist() == [10, 20, 30, 40]


def open_rank(path: Path, plan: RunPlan) -> RankRun:
    return build_case_run(path / "run", Plant(plan)).rank()


def test_queue_usage_is_mean_depth_over_capacity(tmp_path: Path) -> None:
    (queue,) = summarize_queues(open_rank(tmp_path, RunPlan(queue_depths=(0, 1, 2, 3))))
    assert (queue.name, queue.capacity, queue.samples) == ("worker_queue", 4, 40)
    assert (queue.mean_depth, queue.usage_frac, queue.empty_frac) == (1.5, 0.375, 0.25)


def test_stage_work_is_per_batch_and_busy_shares_add_up_within_a_worker(tmp_path: Path) -> None:
    stages = summarize_stages(open_rank(tmp_path, slow("transform")))
    assert [(stage.name, stage.replicas, stage.count, stage.mean_ns) for stage in stages] == [
        ("read", 2, 100, 10e6),
        ("transform", 2, 100, 300e6),
        ("collate", 2, 100, 3e6),
    ]
    assert 0.95 < sum(stage.busy_frac or 0.0 for stage in stages) <= 1.0


def test_readiness_counts_batches_that_wait_for_an_earlier_one(tmp_path: Path) -> None:
    samples = read_queues(open_rank(tmp_path, slow("read")))
    (found,) = summarize_readiness(samples, 0)
    assert (found.queue, found.not_ready_frac, found.held_up_frac) == ("worker_queue", 0.75, 0.0)
    assert summarize_readiness(samples, 7) == ()


def test_the_wait_for_missing_batches_is_told_from_the_steps() -> None:
    samples = pa.table(
        {
            "step": [1, 2, 3, 4],
            "loader": [0] * 4,
            "queue": ["worker_queue"] * 4,
            "depth": [1, 0, 1, 1],
            "next_ready": [True, False, True, True],
            "out_of_order": [0] * 4,
        }
    )
    steps = pa.table({"step": [1, 2, 3, 4], "data_wait_ns": [10, 70, 10, 10]})
    (found,) = summarize_readiness(samples, 0, steps)
    assert (found.not_ready_frac, found.late_wait_frac) == (0.25, 0.7)


SECOND = 1_000_000_000


def stage(name: str, work: float, waits: tuple[float, float], queues: tuple[str, str], replica: int = 0) -> list[Any]:
    """Ten items of one second each, divided into input wait, work and output wait."""
    rows = []
    for number in range(10):
        at = number * SECOND
        for kind, share, queue in (
            ("input_wait", waits[0], queues[0]),
            ("work", work, None),
            ("output_wait", waits[1], queues[1]),
        ):
            length = round(share * SECOND)
            row = {"stage": name, "replica": replica, "kind": kind, "detail": queue, "batch": number}
            rows.append({**row, "start_ns": at, "duration_ns": length, "items": int(kind == "work")})
            at += length
    return rows


def build(*stages: list[Any]) -> pa.Table:
    return build_table_from_rows("stages", [row for rows in stages for row in rows])


def test_the_busiest_stage_that_nothing_holds_up_is_the_limit() -> None:
    own = summarize_own(
        build(
            stage("batch", 0.1, (0.9, 0.0), ("small", "batches")),
            stage("decode", 0.98, (0.01, 0.01), ("paths", "small")),
            stage("read", 0.2, (0.0, 0.8), ("", "paths")),
        )
    )
    assert [entry.name for entry in own] == ["read", "decode", "batch"]
    limit = find_own_bottleneck(own)
    assert limit.stage == "decode"
    for said in (
        "The stage before it, read, waits 80.0 % of the time for room",
        "batch, after it, waits for input",
        "98.0 %",
    ):
        assert said in limit.reason


@pytest.mark.parametrize(
    ("work", "waits", "said"),
    [
        (0.3, (0.0, 0.7), "what takes the results is the limit"),
        (0.6, (0.0, 0.4), "what takes the results is the limit"),
        (0.3, (0.7, 0.0), "what feeds the pipeline is the limit"),
        (0.1, (0.1, 0.1), "No stage works more than"),
    ],
)
def test_no_stage_is_blamed_for_what_lies_outside(work: float, waits: tuple[float, float], said: str) -> None:
    limit = find_own_bottleneck(summarize_own(build(stage("decode", work, waits, ("in", "out")))))
    assert limit.stage is None
    assert said in limit.reason


def wait_during(share: float) -> Intervals:
    """Return the steps' waits: so much of each lies in the work that `stage` lays out from 0.3 to 0.4 s."""
    starts = np.arange(10) * SECOND + round((0.4 - 0.1 * share) * SECOND)
    return unite(starts, starts + SECOND // 10)


@pytest.mark.parametrize(("share", "named"), [(0.9, "augment"), (0.61, "augment"), (0.59, None), (0.0, None)])
def test_a_stage_that_works_while_the_steps_wait_holds_them_up(share: float, named: str | None) -> None:
    """It need not be busy otherwise: a stage on the training thread works only then, and its queue is full."""
    own = summarize_own(build(stage("augment", 0.1, (0.3, 0.0), ("ready", ""))), wait_during(share))
    limit = find_own_bottleneck(own, wait_frac=0.2)
    assert (limit.stage, limit.cause) == (named, "making" if named else "unmarked")
    assert read_bottleneck(limit).tone != "good"
    assert find_own_bottleneck(own, wait_frac=0.04).stage is None


def test_a_batch_that_came_early_is_no_empty_queue() -> None:
    """Worker queues: one that is empty while the main process holds batches, and one that is empty in fact."""
    rows = [
        {"step": at, "start_ns": at, "loader": 0, "queue": "worker_queue", "depth": 0, "capacity": 4, **held}
        for at, held in enumerate([{"next_ready": True, "out_of_order": 2}, {"next_ready": False, "out_of_order": 0}])
    ]
    (found,) = sum_queues(add_received(build_table_from_rows("queues", rows)))
    assert (found.empty_frac, found.mean_depth) == (0.5, 1.0)


def test_batches_that_came_early_are_behind_the_pin_queue() -> None:
    row = {"step": 1, "start_ns": 1, "loader": 0, "depth": 0, "capacity": 4, "next_ready": True, "out_of_order": 1}
    rows = [{**row, "queue": queue} for queue in ("worker_queue", "pin_queue")]
    found = sum_queues(add_received(build_table_from_rows("queues", rows)))
    assert [(queue.name, queue.mean_depth) for queue in found] == [("worker_queue", 0.0), ("pin_queue", 1.0)]


def test_replicas_count_their_items_each() -> None:
    own = build(*(stage("decode", 0.9, (0.1, 0.0), ("in", "out"), replica) for replica in range(3)))
    (decode,) = summarize_own(own)
    assert (decode.summary.replicas, decode.summary.count) == (3, 30)
    assert decode.summary.busy_frac == pytest.approx(0.9, abs=0.01)
    (total,) = summarize_totals(own)
    assert (total.batches, total.items) == (30, 30)


def test_a_pipeline_that_feeds_back_to_itself_has_an_order() -> None:
    own = summarize_own(
        build(stage("a", 0.5, (0.2, 0.2), ("back", "forth")), stage("b", 0.5, (0.2, 0.2), ("forth", "back")))
    )
    assert sorted(entry.name for entry in own) == ["a", "b"]


def test_rows_of_a_loader_are_not_the_users_own() -> None:
    rows = stage("decode", 0.5, (0.2, 0.2), ("in", "out"))
    loaders = [{**row, "stage": "read", "loader": 0, "epoch": 1} for row in rows]
    assert set(select_own(build(rows, loaders))["stage"].to_pylist()) == {"decode"}
