"""Executions on the device and on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.run import RankRun, open_run
from profiler_server.analysis.operators import operators
from profiler_server.analysis.operators.operators import DeviceStep, order_operators, summarize_device_steps
from tests.support.runs import RunPlan, build_run
from tests.support.slices import slice_row, track_rows
from tests.support.tables import write_rows


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    return open_run(build_run(tmp_path / "run", RunPlan())).rank(0)


def test_overlapping_streams_are_busy_once(rank: RankRun) -> None:
    write_rows(rank.run_path, "tracks", track_rows("stream", "stream", "thread"))
    slices = [
        slice_row(0, 0, 0, 100),
        slice_row(1, 1, 50, 20),
        slice_row(2, 1, 90, 30),
        slice_row(3, 0, 200, 10),
        slice_row(4, 2, 0, 5000, category="operator"),
        slice_row(5, 0, 300, 7, step=2),
    ]
    write_rows(rank.run_path, "slices", slices)
    assert summarize_device_steps(rank) == (DeviceStep(1, 4, 210, 130, 80), DeviceStep(2, 1, 7, 7, 0))


def test_a_host_only_run_has_no_device_steps(rank: RankRun) -> None:
    assert summarize_device_steps(rank) == ()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), min_size=1, max_size=40))
def test_wait_is_never_negative_and_busy_is_the_union(intervals: list[tuple[int, int]]) -> None:
    starts = np.array(sorted(start for start, _ in intervals), np.int64)
    lengths = np.array([length for _, length in sorted(intervals)], np.int64)
    step = operators._summarize_step(1, starts, starts + lengths)
    covered = {t for start, length in zip(starts, lengths, strict=True) for t in range(start, start + length)}
    assert step.busy_ns == len(covered)
    assert step.wait_ns == step.total_ns - step.busy_ns >= 0


def test_host_operators_are_numbered_by_their_first_start_in_the_step(rank: RankRun) -> None:
    order = order_operators(rank, 10).to_pylist()
    assert order[0] == {"name": "aten::convolution_backward", "order": 1}
    assert [row["order"] for row in order] == [1, 2, 3, 4, 5, 6, 7]


def test_only_operators_of_that_step_are_numbered_and_each_once(rank: RankRun) -> None:
    write_rows(rank.run_path, "tracks", track_rows("thread"))
    named = (("a", 5, 1), ("b", 10, 2), ("c", 20, 2), ("b", 30, 2), ("a", 40, 2))
    slices = [
        slice_row(number, 0, at, 5, name=name, step=step, category="operator")
        for number, (name, at, step) in enumerate(named)
    ]
    write_rows(rank.run_path, "slices", [*slices, slice_row(9, 0, 12, 1, name="call", step=2, category="runtime")])
    assert order_operators(rank, 2).to_pylist() == [
        {"name": "b", "order": 1},
        {"name": "c", "order": 2},
        {"name": "a", "order": 3},
    ]


def test_work_that_takes_no_time_or_belongs_to_no_step_is_no_execution(rank: RankRun) -> None:
    write_rows(rank.run_path, "tracks", track_rows("stream"))
    slices = [slice_row(0, 0, 10, 1), slice_row(1, 0, 20, 0), slice_row(2, 0, 30, 5, step=None)]
    write_rows(rank.run_path, "slices", slices)
    assert summarize_device_steps(rank) == (DeviceStep(1, 1, 1, 1, 0),)
