"""Which part of the data pipeline holds the step up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from profiler_server.analysis.data.queues import summarize_readiness
from profiler_server.diagnosis.bottleneck import find_bottleneck

WORK = {"read": 10.0, "transform": 80.0, "collate": 3.0}


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
