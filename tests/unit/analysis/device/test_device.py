"""The device's time in small traces whose figures can be worked out by hand (times in microseconds)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from collector.format.run import RankRun, open_run
from collector.format.schema.manifest import Window
from collector.traces.importing import import_trace
from profiler_server.analysis.accounting.categories import list_categories, summarize_categories
from profiler_server.analysis.device.device import (
    COLLECTIVE,
    COPY,
    KERNEL,
    SET,
    find_idle_causes,
    split_windows,
    summarize_device,
    summarize_work,
)
from profiler_server.analysis.device.launches import list_idle, measure_overlap, summarize_launches, trace_queue
from profiler_server.analysis.device.slices import Texts, read_spans
from profiler_server.facts.machine import DeviceSummary, DeviceTimes, IdleCauses
from tests.support.device_work import read_work
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.runs import RunPlan, build_run
from tests.support.slices import launch_shape, slice_row, write_work
from tests.support.tables import write_rows
from tests.support.traces import Event, annotation, call, copy, kernel, operator, step, write_trace


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    run = build_run(tmp_path / "run", RunPlan())
    edit_rank(run, windows=())
    return open_run(run).rank(0)


def _import(tmp_path: Path, events: list[Event]) -> RankRun:
    return import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()


def _summarize(tmp_path: Path, events: list[Event]) -> DeviceSummary:
    return must(summarize_device(_import(tmp_path, events)))


def test_hidden_communication_and_copies_are_not_exposed(tmp_path: Path) -> None:
    calls = [call(i, 1, i) for i in range(1, 4)]
    work = [kernel("gemm", 10, 10, 1), kernel("ncclDevKernel_AllReduce", 15, 10, 2, stream=20), copy(18, 12, 3)]
    found = _summarize(tmp_path, [step(1, 0, 40), *calls, *work])
    assert (found.computation_ns, found.exposed_communication_ns, found.exposed_copy_ns, found.idle_ns) == (
        10_000,
        5_000,
        5_000,
        0,
    )
    assert found.total_ns == 20_000


def test_linked_only_leaves_out_what_no_call_launched(tmp_path: Path) -> None:
    found = _summarize(tmp_path, [step(1, 0, 40), call(1, 1, 1), kernel("a", 10, 5, 1), kernel("b", 20, 5, 99)])
    assert found.computation_ns == 10_000
    assert found.linked_only == DeviceTimes(5_000, 5_000, 0, 0, 0)


def test_multiprocessors_fill_up_to_one(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"blocks per SM": 0.7, "est. achieved occupancy %": 50}
    events = [
        step(1, 0, 100),
        call(1, 1, 1),
        kernel("a", 10, 20, 1, **shape),
        kernel("b", 20, 20, 1, stream=8, **shape),
    ]
    found = _summarize(tmp_path, events)
    assert found.sm_efficiency_frac == pytest.approx((10 * 0.7 + 10 * 1.0 + 10 * 0.7) / 100)
    assert found.occupancy_frac == pytest.approx(0.5)


def test_sm_efficiency_is_unknown_where_the_trace_is_silent(tmp_path: Path) -> None:
    found = _summarize(tmp_path, [step(1, 0, 40), call(1, 1, 1), kernel("Cijk_MI16x16x1", 10, 5, 1)])
    assert (found.sm_efficiency_frac, found.occupancy_frac, found.tensor_core_frac) == (None, None, 1.0)


def test_run_without_slices_has_neither(tmp_path: Path) -> None:
    rank = import_trace(write_trace(tmp_path / "t.json", [step(1, 0, 10)]), tmp_path / "run").rank()
    (rank.folder / "slices.parquet").unlink()
    assert summarize_device(rank) is None
    assert summarize_categories(rank) is None


def test_higher_categories_leave_nothing_to_lower_ones(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100),
        annotation("enumerate(DataLoader)#_Iter.__next__", 0, 30),
        operator("aten::mm", 20, 40),
        call(50, 20, 1),
        kernel("gemm", 55, 20, 1),
    ]
    found = must(list_categories(_import(tmp_path, events)))
    assert {name: int(values[0]) for name, values in found.items() if values[0]} == {
        "kernel": 20_000,
        "runtime": 5_000,
        "dataloader": 30_000,
        "cpu_exec": 20_000,
        "other": 25_000,
    }


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
    found = must(summarize_device(rank))
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
        (29_999, 0, "kernel_wait"),
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
    edit_rank(rank.run_path, windows=tuple(Window(1, 1, at, at + 500) for at in (5000, 1000, 9000)))
    work = write_work(rank, *(slice_row(number, 1, at, 100) for number, at in enumerate((1000, 1200, 5000, 5300))))
    assert [part.start_ns.tolist() for part in split_windows(work, rank_of(rank))] == [[1000, 1200], [5000, 5300]]
    found = summarize_work(work, rank_of(rank))
    assert (found.total_ns, found.computation_ns, found.idle_ns) == (700, 400, 300)


def test_a_window_reaches_over_the_steps_that_lie_in_it(rank: RankRun) -> None:
    edit_rank(rank.run_path, windows=tuple(Window(1, 1, at, at + 500) for at in (1000, 5000, 9000)))
    starts, ends = np.array([900, 1000, 1200, 4900]), np.array([1000, 1200, 1400, 5100])
    spans = read_spans(rank_of(rank), starts, ends)
    assert (spans.starts.tolist(), spans.ends.tolist()) == ([1000, 4900], [1400, 5100])


def _make(*texts: str | None) -> Texts:
    halves = [pa.array(part, pa.string()).dictionary_encode() for part in (texts[:2], texts[2:])]
    return Texts(pa.chunked_array(halves).unify_dictionaries())


def test_null_passes_no_test_and_has_no_number() -> None:
    texts = _make("a", None, "b", None)
    assert texts.match(lambda text: True).tolist() == [True, False, True, False]
    assert texts.number({"b": 7}).tolist() == [-1, -1, 7, -1]


def test_a_delay_runs_from_the_end_of_the_call_to_the_start_of_the_work(tmp_path: Path) -> None:
    calls = [call(10, 5, 1), call(20, 60, 2), call(100, 5, 3)]
    found = must(
        summarize_launches(
            read_work(tmp_path, [*calls, kernel("a", 20, 3, 1), kernel("b", 70, 90, 2), kernel("c", 305, 9, 3)])
        )
    )
    assert (found.count, found.unlinked, found.short, found.late, found.slow) == (3, 0, 1, 1, 1)
    assert (found.delay_p50_ns, found.delay_max_ns) == (5_000, 200_000)  # b began inside of its call: no delay
    assert found.delay_p95_ns is None  # of three launches


def test_work_that_starts_late_is_told_apart_by_what_the_device_did_meanwhile(tmp_path: Path) -> None:
    calls = [call(10, 5, 1), call(20, 5, 2), call(600, 5, 3)]
    work = [kernel("long", 20, 300, 1), kernel("behind it", 330, 9, 2), kernel("held up", 800, 9, 3)]
    found = must(summarize_launches(read_work(tmp_path, [*calls, *work])))
    assert (found.late, found.late_idle) == (2, 1)


def test_work_without_a_known_launch_is_counted_apart(tmp_path: Path) -> None:
    found = must(
        summarize_launches(read_work(tmp_path, [call(1, 1, 1), kernel("a", 10, 5, 1), kernel("b", 20, 5, 99)]))
    )
    assert (found.count, found.unlinked) == (1, 1)
    assert summarize_launches(read_work(tmp_path / "other", [kernel("b", 20, 5, 99)])) is None


def test_a_call_that_launches_a_graph_counts_once(tmp_path: Path) -> None:
    graph = [call(10, 60, 1, "cudaGraphLaunch"), *(kernel("k", 90 + 30 * at, 25, 1) for at in range(10))]
    found = must(summarize_launches(read_work(tmp_path, [*graph, call(400, 5, 2), kernel("a", 410, 2, 2)])))
    assert (found.count, found.unlinked, found.short, found.late, found.slow) == (2, 0, 1, 0, 1)
    assert found.delay_max_ns == 20_000


def test_the_queue_grows_with_launches_and_shrinks_with_starts(tmp_path: Path) -> None:
    events = [call(10, 2, 1), call(20, 2, 2), kernel("a", 30, 20, 1), kernel("b", 50, 5, 2)]
    queue = trace_queue(read_work(tmp_path, events))
    assert ((queue.times_ns - queue.times_ns[0]).tolist(), queue.lengths.tolist()) == (
        [0, 10_000, 20_000, 40_000],
        [1, 2, 1, 0],
    )
    assert queue.mean == pytest.approx((10 * 1 + 10 * 2 + 20 * 1) / 40)


def test_work_that_seems_to_start_before_its_launch_waits_in_no_queue(tmp_path: Path) -> None:
    queue = trace_queue(read_work(tmp_path, [call(10, 2, 1), kernel("a", 5, 20, 1)]))
    assert queue.lengths.tolist() == [0]
    assert queue.mean == 0.0


def test_overlap_is_the_part_of_communication_that_computation_hides(tmp_path: Path) -> None:
    events = [
        call(1, 1, 1),
        call(3, 1, 2),
        kernel("gemm", 10, 10, 1),
        kernel("ncclDevKernel_AllReduce", 15, 20, 2, stream=20),
    ]
    work = read_work(tmp_path, events)
    assert measure_overlap(work) == pytest.approx(0.25)
    assert measure_overlap(work.pick(work.kind != 1)) is None


def test_idle_is_told_stream_by_stream(tmp_path: Path) -> None:
    events = [call(1, 1, 1), call(2, 1, 2), call(60, 1, 3), call(3, 1, 4)]
    events += [kernel("a", 10, 10, 1), kernel("b", 25, 10, 2), kernel("c", 70, 10, 3), kernel("d", 10, 5, 4, stream=8)]
    busiest, other = list_idle(read_work(tmp_path, events))
    assert busiest.causes == IdleCauses(host_wait=35_000, kernel_wait=5_000, other=0)
    assert (busiest.count, busiest.busy_ns, other.count, other.idle_ns) == (3, 30_000, 1, 0)
