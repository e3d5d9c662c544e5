"""Work that was launched and has not started, overlap, and the idle time of each stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.analysis.device.launches import list_idle, measure_overlap, trace_queue
from profiler_server.facts.machine import IdleCauses
from tests.support.device_work import read_work
from tests.support.traces import call, kernel


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


def test_a_queue_of_nothing_is_empty(tmp_path: Path) -> None:
    queue = trace_queue(read_work(tmp_path, [kernel("a", 5, 20, 99)]))
    assert (len(queue.times_ns), queue.mean) == (0, 0.0)


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
