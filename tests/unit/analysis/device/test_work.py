"""Which slices are work of a device, and what is known of their launches and shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.format.run import RankRun, open_run
from profiler_server.analysis.device.device import (
    COLLECTIVE,
    COPY,
    KERNEL,
    SET,
    DeviceWork,
    find_idle_causes,
    read_device_work,
    summarize_device,
    summarize_work,
)
from profiler_server.analysis.results import IdleCauses
from tests.support.runs import RunPlan, build_run
from tests.support.slices import slice_row, track_rows
from tests.support.tables import edit_manifest, write_rows


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    run = build_run(tmp_path / "run", RunPlan())
    edit_manifest(run, windows=())
    return open_run(run).rank(0)


def read(rank: RankRun, *rows: dict[str, Any], kinds: tuple[str, ...] = ("thread", "stream", "stream")) -> DeviceWork:
    tracks = [
        row | {"device": place - 1 if row["kind"] == "stream" else None} for place, row in enumerate(track_rows(*kinds))
    ]
    write_rows(rank.run_path, "tracks", tracks)
    write_rows(rank.run_path, "slices", list(rows))
    work = read_device_work(rank)
    assert work is not None
    return work


def test_work_is_what_a_stream_computed_or_moved(rank: RankRun) -> None:
    """An annotation on a stream is no work, and neither is what a thread calls a kernel."""
    categories = ("kernel", "communication", "memcpy", "memset", "annotation")
    rows = [slice_row(number, 1, 10 * number, 5, category=name) for number, name in enumerate(categories)]
    work = read(rank, *rows, slice_row(7, 0, 100, 5, category="kernel"))
    assert work.kind.tolist() == [KERNEL, COLLECTIVE, COPY, SET]


def test_work_is_in_order_of_start_and_knows_its_device(rank: RankRun) -> None:
    work = read(rank, slice_row(0, 2, 50, 5), slice_row(1, 1, 20, 10))
    assert (work.start_ns.tolist(), work.end_ns.tolist()) == ([20, 50], [30, 55])
    assert (work.track.tolist(), work.device.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize("first_id", [0, 5])
def test_work_names_its_launch_whatever_the_numbers_of_slices(rank: RankRun, first_id: int) -> None:
    call = slice_row(first_id, 0, 100, 7, category="runtime")
    linked = slice_row(first_id + 1, 1, 200, 9, launched_by=first_id)
    unlinked, lost = slice_row(first_id + 2, 1, 300, 9), slice_row(first_id + 3, 1, 400, 9, launched_by=first_id + 4)
    work = read(rank, call, linked, unlinked, lost)
    assert work.linked.tolist() == [True, False, True]
    assert work.launched_by.tolist() == [first_id, -1, first_id + 4]
    assert work.launch_ns.tolist() == [100, -1, -1]
    assert work.launch_end_ns.tolist() == [107, -1, -1]


def test_launches_are_found_where_slices_are_not_numbered_in_order(rank: RankRun) -> None:
    calls = [slice_row(number, 0, 10 * at, 3, category="runtime") for at, number in enumerate((8, 0, 3))]
    work = read(rank, *calls, *(slice_row(20 + number, 1, 100 + number, 1, launched_by=number) for number in (0, 3, 8)))
    assert work.launch_ns.tolist() == [10, 20, 0]


def shape(blocks: float | str, occupancy: float) -> str:
    return json.dumps({"blocks per SM": blocks, "est. achieved occupancy %": occupancy})


def test_shapes_are_those_of_the_row_and_unknown_where_nothing_is_said(rank: RankRun) -> None:
    said = [shape(2, 50), None, shape("many", 100), shape(2, 50)]
    work = read(rank, *(slice_row(number, 1, number, 1, args=args) for number, args in enumerate(said)))
    assert np.array_equal(work.blocks_per_sm, [2, np.nan, np.nan, 2], equal_nan=True)
    assert np.array_equal(work.occupancy_frac, [0.5, np.nan, 1.0, 0.5], equal_nan=True)


def detail(rank: RankRun, *steps: int) -> tuple[int, int]:
    """Let these steps alone be recorded in detail; return where they begin and end."""
    rows = rank.table("steps").to_pylist()
    write_rows(rank.run_path, "steps", [row | {"detailed": row["step"] in steps} for row in rows])
    chosen = [row for row in rows if row["step"] in steps]
    return chosen[0]["start_ns"], chosen[-1]["start_ns"] + chosen[-1]["duration_ns"]


def test_occupancy_is_the_mean_over_time_of_the_kernels_in_the_steps(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    rows = [
        slice_row(0, 1, low - 100, 100, args=shape(1, 90)),
        slice_row(1, 1, low, 300, args=shape(1, 10)),
        slice_row(2, 1, low + 300, 100, args=shape(1, 50)),
        slice_row(3, 1, low + 500, 100),
        slice_row(4, 1, high, 100, args=shape(1, 90)),
        slice_row(5, 2, low, 100, category="memcpy", args=shape(1, 90)),
    ]
    read(rank, *rows)
    found = summarize_device(rank)
    assert found is not None
    assert found.occupancy_frac == pytest.approx((0.1 * 300 + 0.5 * 100) / 400)


def test_multiprocessors_are_filled_by_the_kernels_whose_shape_is_known(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    work = read(rank, slice_row(0, 1, low - 50, 100, args=shape(0.5, 50)), slice_row(1, 1, high - 100, 200))
    found = summarize_work(work, rank)
    assert found.sm_efficiency_frac == pytest.approx(0.5 * 50 / (high - low))
    assert found.utilization_frac == pytest.approx((50 + 100) / (high - low))


def test_a_device_without_kernels_was_not_busy(rank: RankRun) -> None:
    low, _ = detail(rank, 5)
    found = summarize_work(read(rank, slice_row(0, 1, low, 100, category="memcpy")), rank)
    assert (found.utilization_frac, found.sm_efficiency_frac, found.occupancy_frac) == (0.0, 0.0, None)


def test_several_devices_are_as_busy_as_their_mean(rank: RankRun) -> None:
    low, high = detail(rank, 5)
    work = read(rank, slice_row(0, 1, low, high - low), slice_row(1, 2, low, (high - low) // 2))
    assert summarize_work(work, rank).utilization_frac == pytest.approx(0.75)


def test_nothing_is_said_of_steps_that_were_not_recorded_in_detail(rank: RankRun) -> None:
    rows = [row | {"detailed": False} for row in rank.table("steps").to_pylist()]
    write_rows(rank.run_path, "steps", rows)
    found = summarize_work(read(rank, slice_row(0, 1, 10, 5, args=shape(1, 50))), rank)
    assert (found.utilization_frac, found.sm_efficiency_frac, found.occupancy_frac) == (None, None, None)
    assert found.computation_ns == 5


@pytest.mark.parametrize(
    ("gap_ns", "launched_after_ns", "cause"),
    [
        (29_999, -5, "kernel_wait"),
        (30_000, -5, "other"),
        (30_000, 0, "other"),
        (30_000, 1, "host_wait"),
        (10, 1, "host_wait"),
    ],
)
def test_a_gap_is_the_hosts_only_where_the_launch_began_after_the_work_before_it(
    rank: RankRun, gap_ns: int, launched_after_ns: int, cause: str
) -> None:
    first, call = slice_row(1, 1, 1000, 500), slice_row(0, 0, 1500 + launched_after_ns, 1, category="runtime")
    work = read(rank, call, first, slice_row(2, 1, 1500 + gap_ns, 10, launched_by=0))
    assert find_idle_causes(work) == IdleCauses(**{"host_wait": 0, "kernel_wait": 0, "other": 0, cause: gap_ns})


def test_kernels_that_use_tensor_cores_are_a_share_of_the_time_of_all(rank: RankRun) -> None:
    fixed = {"step": 1, "device": 0, "stream": 7, "collective": False, "count": 1, "min_ns": 1, "max_ns": 1}
    rows = [
        fixed | {"name": "wgmma", "tensor_core": True, "total_ns": 30},
        fixed | {"name": "add", "tensor_core": False, "total_ns": 10},
        fixed | {"name": "mul", "tensor_core": False, "total_ns": 60, "device": 1},
    ]
    write_rows(rank.run_path, "kernels", rows)
    work = read(rank, slice_row(0, 1, 10, 5))
    assert summarize_work(work, rank).tensor_core_frac == 0.3
    assert summarize_work(work, rank, 0).tensor_core_frac == 0.75
    write_rows(rank.run_path, "kernels", [])
    assert summarize_work(work, rank).tensor_core_frac is None
