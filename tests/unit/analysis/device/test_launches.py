"""Launches, queue and overlap in small traces whose figures can be worked out by hand (times in microseconds)."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.analysis.device.launches import list_idle, measure_overlap, summarize_launches, trace_queue
from profiler_server.facts.machine import IdleCauses
from tests.support.device_work import read_work
from tests.support.must import must
from tests.support.traces import call, kernel


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
