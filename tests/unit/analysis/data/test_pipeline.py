"""Queues, stages and the stage that limits the step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from collector.format.run import RankRun
from profiler_server.analysis.data.pipeline import (
    Readiness,
    WorkerLoad,
    find_bottleneck,
    find_loader,
    read_queues,
    summarize_queues,
    summarize_readiness,
    summarize_stages,
)
from tests.support.cases import PLANTED, Plant, build_case_run, slow
from tests.support.runs import RunPlan

WORK = {"read": 10.0, "transform": 80.0, "collate": 3.0}


def open_rank(path: Path, plan: RunPlan) -> RankRun:
    return build_case_run(path / "run", Plant(plan)).rank()


def test_queue_usage_is_mean_depth_over_capacity(tmp_path: Path) -> None:
    (queue,) = summarize_queues(open_rank(tmp_path, RunPlan(queue_depths=(0, 1, 2, 3))))
    assert (queue.name, queue.capacity, queue.samples) == ("worker_queue", 4, 40)
    assert (queue.mean_depth, queue.usage_frac, queue.empty_frac) == (1.5, 0.375, 0.25)


def test_queues_come_in_the_order_of_the_batch(tmp_path: Path) -> None:
    queues = summarize_queues(open_rank(tmp_path, RunPlan(pin_memory=True)))
    assert [queue.name for queue in queues] == ["worker_queue", "pin_queue"]


def test_a_loader_without_workers_has_stages_but_no_queue(tmp_path: Path) -> None:
    rank = open_rank(tmp_path, RunPlan(workers=0))
    assert summarize_queues(rank) == ()
    assert [stage.name for stage in summarize_stages(rank)] == ["read", "transform", "collate"]
    assert find_loader(rank) == 0


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
    assert samples is not None
    (found,) = summarize_readiness(samples, 0)
    assert (found.queue, found.not_ready_frac, found.held_up_frac) == ("worker_queue", 0.75, 0.0)
    assert summarize_readiness(samples, 7) == ()


@pytest.mark.parametrize(
    ("worker", "pin", "wait", "stage"),
    [
        (0.9, None, 0.4, "transform"),  # nothing after the workers: they are the limit
        (0.1, None, 0.4, None),  # always ready: not the loader
        (0.9, 0.9, 0.4, "transform"),
        (0.1, 0.9, 0.4, "pin"),  # full before, empty after the pin thread
        (0.9, 0.1, 0.4, None),  # the pin thread empties the first queue into a full second one: healthy
        (0.9, 0.9, 0.01, None),  # the step hardly waits
    ],
)
def test_bottleneck_stage_has_a_full_queue_before_and_an_empty_one_after(
    worker: float, pin: float | None, wait: float, stage: str | None
) -> None:
    queues = [Readiness("worker_queue", 100, worker, 0.0)]
    if pin is not None:
        queues.append(Readiness("pin_queue", 100, pin, 0.0))
    assert find_bottleneck(queues, WORK, wait).stage == stage


def test_without_workers_the_longest_stage_is_the_limit() -> None:
    assert find_bottleneck((), WORK, 0.4).stage == "transform"


def test_planted_slow_stages_are_named(tmp_path: Path) -> None:
    for stage in ("read", "transform", "collate"):
        rank = build_case_run(tmp_path / stage, PLANTED[f"slow_{stage}"]).rank()
        longest = max(summarize_stages(rank), key=lambda row: row.mean_ns)
        assert longest.name == stage


@pytest.mark.parametrize(
    ("wait_frac", "busy_frac", "cpu_frac", "stage"),
    [
        (0.4, 0.7, 0.9, "collate"),
        (0.4, 0.7, None, "collate"),
        (0.4, 0.7, 0.1, "send"),
        (0.4, 0.3, 0.9, None),
        (0.05, 0.9, 0.9, None),
    ],
)
def test_ready_batches_are_held_up_by_workers_that_compute_or_by_the_way_over(
    wait_frac: float, busy_frac: float, cpu_frac: float | None, stage: str | None
) -> None:
    queues = [Readiness("worker_queue", 100, 0.1, 0.0)]
    work = {"read": 5.0, "collate": 40.0}
    assert find_bottleneck(queues, work, wait_frac, WorkerLoad(busy_frac, cpu_frac)).stage == stage


@pytest.mark.parametrize(("late_wait_frac", "stage"), [(0.7, "collate"), (0.3, None)])
def test_few_missing_batches_are_late_when_the_step_waits_for_them(late_wait_frac: float, stage: str | None) -> None:
    queues = [Readiness("worker_queue", 100, 0.2, 0.0, late_wait_frac)]
    assert find_bottleneck(queues, {"read": 5.0, "collate": 40.0}, 0.4).stage == stage


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
