"""How busy a device was: shares of the steps that were recorded in detail."""

from __future__ import annotations

import pytest

from collector.format.run import RankRun
from profiler_server.analysis.device.device import (
    summarize_device,
    summarize_work,
)
from tests.support.slices import launch_shape, slice_row, write_work
from tests.support.tables import write_rows


def detail(rank: RankRun, *steps: int) -> tuple[int, int]:
    """Let these steps alone be recorded in detail; return where they begin and end."""
    rows = rank.table("steps").to_pylist()
    write_rows(rank.run_path, "steps", [row | {"detailed": row["step"] in steps} for row in rows])
    chosen = [row for row in rows if row["step"] in steps]
    return chosen[0]["start_ns"], chosen[-1]["start_ns"] + chosen[-1]["duration_ns"]


def test_occupancy_is_the_mean_over_time_of_the_kernels_in_the_steps(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    rows = [
        slice_row(0, 1, low - 100, 100, args=launch_shape(1, 90)),
        slice_row(1, 1, low, 300, args=launch_shape(1, 10)),
        slice_row(2, 1, low + 300, 100, args=launch_shape(1, 50)),
        slice_row(3, 1, low + 500, 100),
        slice_row(4, 1, high, 100, args=launch_shape(1, 90)),
        slice_row(5, 2, low, 100, category="memcpy", args=launch_shape(1, 90)),
    ]
    write_work(rank, *rows)
    found = summarize_device(rank)
    assert found is not None
    assert found.occupancy_frac == pytest.approx((0.1 * 300 + 0.5 * 100) / 400)


def test_multiprocessors_are_filled_by_the_kernels_whose_shape_is_known(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    outside = (
        slice_row(number, 1, at, 90, args=launch_shape(1, 50)) for number, at in ((2, low - 200), (3, high + 200))
    )
    inside = slice_row(0, 1, low - 50, 100, args=launch_shape(0.5, 50)), slice_row(1, 1, high - 100, 200)
    work = write_work(rank, *inside, *outside)
    found = summarize_work(work, rank)
    assert found.sm_efficiency_frac == pytest.approx(0.5 * 50 / (high - low))
    assert found.utilization_frac == pytest.approx((50 + 100) / (high - low))


def test_a_device_without_kernels_was_not_busy(rank: RankRun) -> None:
    low, _ = detail(rank, 5)
    found = summarize_work(write_work(rank, slice_row(0, 1, low, 100, category="memcpy")), rank)
    assert (found.utilization_frac, found.sm_efficiency_frac, found.occupancy_frac) == (0.0, 0.0, None)


def test_collectives_keep_a_device_busy(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    found = summarize_work(
        write_work(rank, slice_row(0, 1, low, 100, category="communication", args=launch_shape(1, 50))), rank
    )
    assert found.utilization_frac == pytest.approx(100 / (high - low))
    assert found.occupancy_frac == 0.5


def test_several_devices_are_as_busy_as_their_mean(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    work = write_work(rank, slice_row(0, 1, low, high - low), slice_row(1, 2, low, (high - low) // 2))
    assert summarize_work(work, rank).utilization_frac == pytest.approx(0.75)


def test_nothing_is_said_of_steps_that_were_not_recorded_in_detail(rank: RankRun) -> None:
    rows = [row | {"detailed": False} for row in rank.table("steps").to_pylist()]
    write_rows(rank.run_path, "steps", rows)
    found = summarize_work(write_work(rank, slice_row(0, 1, 10, 5, args=launch_shape(1, 50))), rank)
    assert (found.utilization_frac, found.sm_efficiency_frac, found.occupancy_frac) == (None, None, None)
    assert found.computation_ns == 5


def test_kernels_that_use_tensor_cores_are_a_share_of_the_time_of_all(rank: RankRun) -> None:
    fixed = {"step": 1, "device": 0, "stream": 7, "collective": False, "count": 1, "min_ns": 1, "max_ns": 1}
    rows = [
        fixed | {"name": "wgmma", "tensor_core": True, "total_ns": 30},
        fixed | {"name": "add", "tensor_core": False, "total_ns": 10},
        fixed | {"name": "mul", "tensor_core": False, "total_ns": 60, "device": 1},
    ]
    write_rows(rank.run_path, "kernels", rows)
    work = write_work(rank, slice_row(0, 1, 10, 5))
    assert summarize_work(work, rank).tensor_core_frac == 0.3
    assert summarize_work(work, rank, 0).tensor_core_frac == 0.75
    write_rows(rank.run_path, "kernels", [])
    assert summarize_work(work, rank).tensor_core_frac is None
