"""Which part of the data pipeline holds the step up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from profiler_server.analysis.data.queues import summarize_readiness
from profiler_server.diagnosis.bottleneck import find_bottleneck
from profiler_server.facts.loading import Readiness
from profiler_server.facts.pipeline import WorkerLoad

WORK = {"read": 10.0, "transform": 80.0, "collate": 3.0}


@pytest.mark.parametrize(
    ("worker", "pin", "wait", "stage"),
    [
        (0.9, None, 0.4, "transform"),  # nothing after the workers: they are the limit
        (0.1, None, 0.4, "send"),  # always ready: receiving them is what takes the time
        (0.9, 0.9, 0.4, "transform"),
        (0.1, 0.9, 0.4, "pin"),  # full before, empty after the pin thread
        (0.9, 0.1, 0.4, "send"),  # the pin thread empties the first queue into a full second one
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


@pytest.mark.parametrize(
    ("wait_frac", "busy_frac", "cpu_frac", "stage"),
    [
        (0.4, 0.7, 0.9, "collate"),
        (0.4, 0.7, None, "collate"),
        (0.4, 0.7, 0.1, "send"),
        (0.4, 0.3, 0.9, "send"),
        (0.04, 0.9, 0.9, None),
    ],
)
def test_ready_batches_are_held_up_by_workers_that_compute_or_by_the_way_over(
    wait_frac: float, busy_frac: float, cpu_frac: float | None, stage: str | None
) -> None:
    queues = [Readiness("worker_queue", 100, 0.1, 0.0)]
    work = {"read": 5.0, "collate": 40.0}
    assert find_bottleneck(queues, work, wait_frac, WorkerLoad(busy_frac, cpu_frac)).stage == stage


@pytest.mark.parametrize(("late_wait_frac", "stage"), [(0.7, "collate"), (0.3, "send")])
def test_few_missing_batches_are_late_when_the_step_waits_for_them(late_wait_frac: float, stage: str | None) -> None:
    queues = [Readiness("worker_queue", 100, 0.2, 0.0, late_wait_frac)]
    assert find_bottleneck(queues, {"read": 5.0, "collate": 40.0}, 0.4).stage == stage


def test_a_queue_that_holds_only_later_batches_is_told_by_the_wait() -> None:
    """Whether the next batch was ready is not seen while the queue holds others: one that took long was missing."""
    unseen = [n in (5, 15) for n in range(20)]
    samples = pa.table(
        {
            "step": list(range(20)),
            "loader": [0] * 20,
            "queue": ["worker_queue"] * 20,
            "depth": [4] * 20,
            "next_ready": pa.array([None if hidden else True for hidden in unseen], pa.bool_()),
            "out_of_order": [0] * 20,
        }
    )
    waits = [2_000_000_000 if n == 5 else 300_000 for n in range(20)]
    (found,) = summarize_readiness(samples, 0, pa.table({"step": list(range(20)), "data_wait_ns": waits}))
    assert found.not_ready_frac == pytest.approx(1 / 20)
    assert found.held_up_frac == pytest.approx(1 / 20)
    assert find_bottleneck([found], WORK, 0.6).cause == "making"
