"""Executions on the device and on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format import parts
from collector.format.run import RankRun, open_run
from profiler_server.analysis.device import executions
from profiler_server.analysis.device.executions import DeviceStep, order_operators, summarize_device_steps
from tests.support.runs import RunPlan, build_run


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    return open_run(build_run(tmp_path / "run", RunPlan())).rank(0)


def _write(rank: RankRun, table: str, rows: list[dict[str, Any]]) -> None:
    parts.write_table(parts.build_table_from_rows(table, rows), rank.folder / f"{table}.parquet")


def _slice(number: int, track: int, start: int, length: int, **columns: Any) -> dict[str, Any]:
    place = {"id": number, "track": track, "depth": 0, "start_ns": start, "duration_ns": length}
    return {**place, "name": "k", "category": "kernel", "step": 1, **columns}


def _tracks(*kinds: str) -> list[dict[str, Any]]:
    return [
        {"track": number, "kind": kind, "name": kind, "process": "", "order": number, "unit": ""}
        for number, kind in enumerate(kinds)
    ]


def test_overlapping_streams_are_busy_once(rank: RankRun) -> None:
    _write(rank, "tracks", _tracks("stream", "stream", "thread"))
    slices = [
        _slice(0, 0, 0, 100),
        _slice(1, 1, 50, 20),
        _slice(2, 1, 90, 30),
        _slice(3, 0, 200, 10),
        _slice(4, 2, 0, 5000, category="operator"),
        _slice(5, 0, 300, 7, step=2),
    ]
    _write(rank, "slices", slices)
    assert summarize_device_steps(rank) == (DeviceStep(1, 4, 210, 130, 80), DeviceStep(2, 1, 7, 7, 0))


def test_a_host_only_run_has_no_device_steps(rank: RankRun) -> None:
    assert summarize_device_steps(rank) == ()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), min_size=1, max_size=40))
def test_wait_is_never_negative_and_busy_is_the_union(intervals: list[tuple[int, int]]) -> None:
    starts = np.array(sorted(start for start, _ in intervals), np.int64)
    lengths = np.array([length for _, length in sorted(intervals)], np.int64)
    step = executions._summarize_step(1, starts, starts + lengths)
    covered = {t for start, length in zip(starts, lengths, strict=True) for t in range(start, start + length)}
    assert step.busy_ns == len(covered)
    assert step.wait_ns == step.total_ns - step.busy_ns >= 0


def test_host_operators_are_numbered_by_their_first_start_in_the_step(rank: RankRun) -> None:
    order = order_operators(rank, 10).to_pylist()
    assert order[0] == {"name": "aten::convolution_backward", "order": 1}
    assert [row["order"] for row in order] == [1, 2, 3, 4, 5, 6, 7]
