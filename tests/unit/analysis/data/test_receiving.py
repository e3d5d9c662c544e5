"""How long it takes to take over a batch, apart for workers that compute meanwhile and those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector.format.parts import build_table_from_rows
from profiler_server.analysis.data.fetches import compare_receiving
from profiler_server.facts.loading import BatchTimes, Receiving

MS = 1_000_000
Row = dict[str, Any]


def stages_of(batch: int, begin_ms: float) -> list[Row]:
    """One worker makes a batch for 10 ms from `begin_ms` on and sends it for 1 ms."""
    common = {"replica": 0, "kind": "work", "loader": 0, "epoch": 1, "items": 4}
    return [
        {**common, "stage": stage, "batch": batch, "start_ns": int(at * MS), "duration_ns": int(took * MS)}
        for stage, at, took in (("read", begin_ms, 10), ("send", begin_ms + 10, 1))
    ]


def fetch_of(batch: int, asked_ms: float, took_ms: float) -> Row:
    common = {"index": batch, "step": batch + 1, "loader": 0, "epoch": 1, "batch": batch}
    return {**common, "start_ns": int(asked_ms * MS), "duration_ns": int(took_ms * MS)}


def receive(period_ms: float, asked_ms: float, took_ms: float, batches: int = 30) -> Receiving | None:
    """A worker begins a batch every so often; each is asked for so long after its beginning."""
    stages = [row for n in range(batches) for row in stages_of(n, n * period_ms)]
    fetches = [fetch_of(n, n * period_ms + asked_ms, took_ms) for n in range(batches)]
    return compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages))


def test_the_wait_before_a_batch_has_been_sent_is_not_receiving_it() -> None:
    found = receive(period_ms=40.0, asked_ms=5.0, took_ms=8.0)
    assert found is not None
    assert found.idle_ns == pytest.approx(2.0 * MS)  # asked at 5, sent at 11, there at 13


def test_a_worker_that_makes_the_next_batch_is_told_from_one_that_waits() -> None:
    idle = receive(40.0, 13.0, 1.0)
    assert idle is not None
    assert (idle.idle_ns, idle.held_ns) == pytest.approx((1.0 * MS, 0.0))
    # Every other batch is followed by the next at once, and takes 4 ms longer to take over.
    begins = [n * 20.0 - 8.0 * (n % 2) for n in range(60)]
    stages = [row for n, begin in enumerate(begins) for row in stages_of(n, begin)]
    fetches = [fetch_of(n, begin + 12.0, 1.0 if n % 2 else 5.0) for n, begin in enumerate(begins)]
    found = compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages))
    assert found is not None
    assert (found.idle_ns, found.held_ns) == pytest.approx((1.0 * MS, 4.0 * MS), rel=0.01)


def test_a_batch_that_is_soon_made_holds_the_interpreter_no_longer_than_that() -> None:
    begins = [n * 12.0 for n in range(60)]
    stages = [row for n, begin in enumerate(begins) for row in stages_of(n, begin)]
    fetches = [fetch_of(n, begin + 20.0, 3.0) for n, begin in enumerate(begins)]  # 2 ms of the next batch are left
    found = compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages))
    assert found is not None
    assert found.idle_ns + min(found.held_ns, 2.0 * MS) == pytest.approx(3.0 * MS, rel=0.01)


def test_from_a_few_batches_nothing_is_known() -> None:
    assert receive(12.0, 13.0, 3.0, batches=5) is None
    assert receive(12.0, 13.0, 3.0, batches=0) is None


def test_choosing_samples_within_the_request_is_not_receiving() -> None:
    taken = replace(BatchTimes({"read": np.ones(3)}, np.ones(3), None, 4.0), receiving=Receiving(22.0 * MS, 1.0 * MS))
    assert taken.without_sampling(21.0 * MS).receiving == Receiving(1.0 * MS, 1.0 * MS)
    assert taken.without_sampling(30.0 * MS).receiving == Receiving(0.0, 1.0 * MS)
