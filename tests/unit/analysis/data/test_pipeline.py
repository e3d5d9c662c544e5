"""Queues, stages and the stage that limits the step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from collector.format.run import RankRun
from profiler_server.analysis.data.queues import read_queues, summarize_queues, summarize_readiness
from profiler_server.analysis.data.stages import find_loader, summarize_stages
from tests.support.cases import PLANTED, Plant, build_case_run, slow
from tests.support.runs import RunPlan


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
    (found,) = summarize_readiness(samples, 0)
    assert (found.queue, found.not_ready_frac, found.held_up_frac) == ("worker_queue", 0.75, 0.0)
    assert summarize_readiness(samples, 7) == ()


def test_planted_slow_stages_are_named(tmp_path: Path) -> None:
    for stage in ("read", "transform", "collate"):
        rank = build_case_run(tmp_path / stage, PLANTED[f"slow_{stage}"]).rank()
        longest = max(summarize_stages(rank), key=lambda row: row.mean_ns)
        assert longest.name == stage


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
