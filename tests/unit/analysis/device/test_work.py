"""Which slices are work of a device, and what is known of their launches and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from collector.format.run import RankRun, open_run
from collector.format.schema.manifest import Window
from profiler_server.analysis.device.device import (
    COLLECTIVE,
    COPY,
    KERNEL,
    SET,
    account_times,
    find_idle_causes,
    split_windows,
    summarize_work,
)
from profiler_server.facts.machine import DeviceTimes, IdleCauses
from tests.support.slices import launch_shape, slice_row, write_work
from tests.support.tables import edit_manifest


def test_work_is_what_a_stream_computed_or_moved(rank: RankRun) -> None:
    """An annotation on a stream is no work, and neither is what a thread calls a kernel."""
    categories = ("kernel", "communication", "memcpy", "memset", "annotation")
    rows = [slice_row(number, 1, 10 * number, 5, category=name) for number, name in enumerate(categories)]
    work = write_work(rank, *rows, slice_row(7, 0, 100, 5, category="kernel"))
    assert work.kind.tolist() == [KERNEL, COLLECTIVE, COPY, SET]


def test_work_is_in_order_of_start_and_knows_its_device(rank: RankRun) -> None:
    work = write_work(rank, slice_row(0, 2, 50, 5), slice_row(1, 1, 20, 10))
    assert (work.start_ns.tolist(), work.end_ns.tolist()) == ([20, 50], [30, 55])
    assert (work.track.tolist(), work.device.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize("first_id", [0, 5])
def test_work_names_its_launch_whatever_the_numbers_of_slices(rank: RankRun, first_id: int) -> None:
    call = slice_row(first_id, 0, 100, 7, category="runtime")
    linked = slice_row(first_id + 1, 1, 200, 9, launched_by=first_id)
    unlinked, lost = slice_row(first_id + 2, 1, 300, 9), slice_row(first_id + 3, 1, 400, 9, launched_by=first_id + 4)
    work = write_work(rank, call, linked, unlinked, lost)
    assert work.linked.tolist() == [True, False, True]
    assert work.launched_by.tolist() == [first_id, -1, first_id + 4]
    assert work.launch_ns.tolist() == [100, -1, -1]
    assert work.launch_end_ns.tolist() == [107, -1, -1]


def test_launches_are_found_where_slices_are_not_numbered_in_order(rank: RankRun) -> None:
    calls = [slice_row(number, 0, 10 * at, 3, category="runtime") for at, number in enumerate((80, 0, 3))]
    work = write_work(
        rank, *calls, *(slice_row(20 + number // 2, 1, 100 + number, 1, launched_by=number) for number in (0, 3, 80))
    )
    assert work.launch_ns.tolist() == [10, 20, 0]


def test_shapes_are_those_of_the_row_and_unknown_where_nothing_is_said(rank: RankRun) -> None:
    said = [launch_shape(2, 50), None, launch_shape("many", 100), launch_shape(2, 50)]
    work = write_work(rank, *(slice_row(number, 1, number, 1, args=args) for number, args in enumerate(said)))
    assert np.array_equal(work.blocks_per_sm, [2, np.nan, np.nan, 2], equal_nan=True)
    assert np.array_equal(work.occupancy_frac, [0.5, np.nan, 1.0, 0.5], equal_nan=True)


def rank_of(rank: RankRun) -> RankRun:
    """Return the rank as its files are now."""
    return open_run(rank.run_path).rank(0)


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
    work = write_work(rank, call, first, slice_row(2, 1, 1500 + gap_ns, 10, launched_by=0))
    assert find_idle_causes(work) == IdleCauses(**{"host_wait": 0, "kernel_wait": 0, "other": 0, cause: gap_ns})


def test_work_that_follows_at_once_or_runs_beside_other_work_leaves_no_gap(rank: RankRun) -> None:
    rows = [slice_row(0, 1, 1000, 500), slice_row(1, 1, 1500, 500), slice_row(2, 1, 1900, 500)]
    rows += [slice_row(3, 2, 5000, 100), slice_row(4, 2, 5110, 100), slice_row(5, 2, 5300, 100)]
    assert find_idle_causes(write_work(rank, *rows)) == IdleCauses(host_wait=0, kernel_wait=10 + 90, other=0)


def test_time_between_windows_is_nobodys(rank: RankRun) -> None:
    edit_manifest(rank.run_path, windows=tuple(Window(1, 1, at, at + 500) for at in (5000, 1000, 9000)))
    work = write_work(rank, *(slice_row(number, 1, at, 100) for number, at in enumerate((1000, 1200, 5000, 5300))))
    assert [part.start_ns.tolist() for part in split_windows(work, rank_of(rank))] == [[1000, 1200], [5000, 5300]]
    found = summarize_work(work, rank_of(rank))
    assert (found.total_ns, found.computation_ns, found.idle_ns) == (700, 400, 300)


def test_nothing_takes_no_time(rank: RankRun) -> None:
    work = write_work(rank, slice_row(0, 1, 10, 5))
    assert account_times(work.pick(work.start_ns > 10)) == DeviceTimes(0, 0, 0, 0, 0)
