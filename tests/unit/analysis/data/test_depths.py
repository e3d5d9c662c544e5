"""Queue depths by step and over time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from collector.format import parts
from profiler_server.analysis.data.queues import QueueKey, list_queues, trace_by_step, trace_over_time


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


def test_a_queue_of_the_users_is_found_by_name() -> None:
    queues = _queues(_sample(1, 2, loader=-1, queue="decoded"), _sample(1, 5, loader=None, queue="decoded"))
    assert trace_over_time(queues, QueueKey(None, "decoded")).depths.tolist() == [2, 5]


def test_a_queue_without_samples_is_an_empty_trace() -> None:
    trace = trace_by_step(_queues(), HOST)
    assert (trace.capacity, len(trace.steps)) == (0, 0)
