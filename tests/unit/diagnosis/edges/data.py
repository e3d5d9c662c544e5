"""Thresholds of what is measured of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format.parts import build_table_from_rows
from profiler_server.analysis.data.batches import _compare_crowds, _estimate_stretch
from profiler_server.analysis.data.feeding import _split
from profiler_server.analysis.data.fetches import compare_receiving
from profiler_server.analysis.data.loop import Cores, estimate_others, measure_queueing
from profiler_server.analysis.data.queues import _find_ready
from profiler_server.facts.machine import HostLoad
from tests.unit.analysis.data.test_batches import fetch_of, receive, stages_of
from tests.unit.diagnosis.edges.base import Edge, whole


def feed(share: float, steps: int = 10_000) -> int:
    """Return how many loaders feed steps, of which this share takes a batch of the second one."""
    first, second = np.arange(steps), np.arange(whole(steps * share))
    fetches = pa.table(
        {
            "index": np.concatenate([first, second]),
            "loader": np.repeat([0, 1], [len(first), len(second)]),
            "duration_ns": np.ones(len(first) + len(second), np.int64),
        }
    )
    return len(_split(fetches, pa.table({"index": first, "data_wait_ns": np.full(steps, 10)})))


def is_ready(usual_ns: float, wait_ns: float) -> bool:
    """Say whether a batch counts as ready of which only the wait is known."""
    rows = pa.table({"next_ready": pa.array([True, None]), "depth": pa.array([1, 1])})
    return bool(_find_ready(rows, np.array([usual_ns, wait_ns], np.int64))[1])


def ask(cores: float, **load: Any) -> float:
    fields: dict[str, Any] = {"process": 0.5, "workers": 0.0, "system": 1.5, "others": 0.0, **load}
    return estimate_others(Cores(cores, 1.0, True, HostLoad(**fields)), 0)


def queue(process: float) -> float:
    load = HostLoad(process, 0.0, process, 0.0, queued_frac=0.5)
    return measure_queueing(Cores(4.0, 1.0, True, load), 0, 7.0)[1]


def crowd(count: int, beside: float = 2.0) -> bool:
    """Compare a third of the reads, each alone, with pairs that lie beside each other for that long."""
    alone = count // 3
    starts = [10_000_000 * n for n in range(alone)]
    for pair in range((count - alone + 1) // 2):
        start = 10_000_000 * (alone + pair)
        starts += [start, start + round((2.0 - beside) * 1_000_000)]
    starts = starts[:count]
    rows = {"start_ns": starts, "duration_ns": [1_000_000] * count, "bytes": [1_000_000] * count}
    return _compare_crowds(pa.table(rows)) is not None


def holds(apart_ns: float) -> bool:
    """Say whether a worker that begins its next batch so long after the request for one holds up taking that over."""
    begins = [n * 20.0 - (8.0 - apart_ns / 1e6) * (n % 2) for n in range(60)]
    stages = [row for n, begin in enumerate(begins) for row in stages_of(n, begin)]
    fetches = [fetch_of(n, begin + 12.0, 1.0 if n % 2 else 5.0) for n, begin in enumerate(begins)]
    found = compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages))
    assert found is not None
    return found.held_ns > 0


EDGES: Mapping[str, Edge] = {
    "FED_FRAC": Edge(0.1, lambda x: feed(x) == 2),
    "LATE_RATIO": Edge(5.0, lambda x: not is_ready(1e9, x * 1e9 + 1e6)),
    "LATE_NS": Edge(1_000_000.0, lambda x: not is_ready(0.0, x)),
    "QUEUES_FROM": Edge(1.05, lambda x: ask(1.0, stretch=x, queued_frac=0.0, others_anywhere=1.0) > 0),
    "LEAST_CORES": Edge(0.02, lambda x: queue(x) != 7.0),
    "ROUNDED_CORES": Edge(0.15, lambda x: ask(64.0, process=0.0, others=1.0 + x) > 1.1),
    "LEAST_BATCHES": Edge(20, lambda x: crowd(whole(3 * x))),
    "CROWDED_RATIO": Edge(1.4, lambda x: crowd(300, x)),
    "RECEIVED_FETCHES": Edge(10, lambda x: receive(40.0, 13.0, 1.0, batches=whole(x)) is not None),
    "SOON_NS": Edge(1_000_000, lambda x: not holds(x)),
    "STAGE_CPU_NS": Edge(
        50_000.0, lambda x: _estimate_stretch({"read": 2e6, "collate": 3e6}, {"read": 1e6, "collate": x}, 1) > 1.0
    ),
}
