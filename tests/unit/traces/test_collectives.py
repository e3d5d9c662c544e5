"""What counts as a collective, and what is known of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.traces.importing import import_trace
from profiler_server.analysis.ranks.collectives import summarize_collectives
from profiler_server.analysis.ranks.ranks import summarize_ranks
from tests.support.traces import annotation, call, kernel, step, write_trace


def test_a_single_trace_tells_bytes_and_bandwidths_of_its_collectives(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "Collective name": "_allgather_base",
        "dtype": "BFloat16",
        "Group size": 4,
        "In msg nelems": 1000,
        "Out msg nelems": 4000,
    }
    gather = kernel("ncclDevKernel_AllGather", 10, 20, 1, **told)
    span = annotation("nccl:all_to_all", 50, 30, **{"Input Dims": [[8, 1000]], "Input type": ["float"]})
    events = [step(1, 0, 300), call(5, 1, 1), gather, span, call(60, 1, 2), kernel("ncclKernel_SendRecv", 100, 16, 2)]
    # Without a group size nobody knows how much a gather brings together.
    bare = annotation("nccl:_all_gather_base", 150, 20, **{"Input Dims": [[1000]], "Input type": ["float"]})
    events += [bare, call(155, 1, 3), kernel("ncclKernel_AllGather", 200, 10, 3)]
    run = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run")
    rows = run.table("collectives").to_pylist()
    assert [(row["name"], row["bytes"]) for row in rows] == [
        ("_allgather_base", 8_000),
        ("alltoall", 32_000),
        ("allgather", None),
    ]
    found = {row.name: row for row in summarize_collectives(summarize_ranks(run))}
    assert found["_allgather_base"].algorithm_bytes_per_s == pytest.approx(8_000 / 20e-6)
    assert found["_allgather_base"].bus_bytes_per_s == pytest.approx(8_000 / 20e-6 * 3 / 4)
    assert found["alltoall"].algorithm_bytes_per_s == pytest.approx(2e9)
    assert found["alltoall"].bus_bytes_per_s is None
    assert found["allgather"].algorithm_bytes_per_s is None
