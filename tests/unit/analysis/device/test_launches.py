"""Launches, queue and overlap in small traces whose figures can be worked out by hand (times in microseconds)."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.traces import import_trace
from profiler_server.analysis.device.device import read_device_work, summarize_work
from profiler_server.analysis.device.launches import summarize_launches
from tests.support.device_work import read_work
from tests.support.traces import call, kernel, step, write_trace


def test_a_delay_runs_from_the_end_of_the_call_to_the_start_of_the_work(tmp_path: Path) -> None:
    calls = [call(10, 5, 1), call(20, 60, 2), call(100, 5, 3)]
    found = summarize_launches(
        read_work(tmp_path, [*calls, kernel("a", 20, 3, 1), kernel("b", 70, 90, 2), kernel("c", 305, 9, 3)])
    )
    assert found is not None
    assert (found.count, found.unlinked, found.short, found.late, found.slow) == (3, 0, 1, 1, 1)
    assert (found.delay_p50_ns, found.delay_max_ns) == (5_000, 200_000)  # b began inside of its call: no delay
    assert found.delay_p95_ns is None  # of three launches


@pytest.mark.parametrize(
    ("call_us", "delay_us", "work_us", "counted"),
    [(50, 100, 50, (0, 0, 0)), (50.001, 100, 50, (1, 0, 1)), (50, 100.001, 50, (0, 1, 0))],
)
def test_a_launch_counts_as_short_late_or_slow_beyond_the_mark_only(
    tmp_path: Path, call_us: float, delay_us: float, work_us: float, counted: tuple[int, int, int]
) -> None:
    found = summarize_launches(
        read_work(tmp_path, [call(10, call_us, 1), kernel("a", 10 + call_us + delay_us, work_us, 1)])
    )
    assert found is not None
    assert (found.short, found.late, found.slow) == counted


def test_work_without_a_known_launch_is_counted_apart(tmp_path: Path) -> None:
    found = summarize_launches(read_work(tmp_path, [call(1, 1, 1), kernel("a", 10, 5, 1), kernel("b", 20, 5, 99)]))
    assert found is not None
    assert (found.count, found.unlinked) == (1, 1)
    assert summarize_launches(read_work(tmp_path / "other", [kernel("b", 20, 5, 99)])) is None


def test_a_call_that_launches_a_graph_counts_once(tmp_path: Path) -> None:
    graph = [call(10, 60, 1, "cudaGraphLaunch"), *(kernel("k", 90 + 30 * at, 25, 1) for at in range(10))]
    found = summarize_launches(read_work(tmp_path, [*graph, call(400, 5, 2), kernel("a", 410, 2, 2)]))
    assert found is not None
    assert (found.count, found.unlinked, found.short, found.late, found.slow) == (2, 0, 1, 0, 1)
    assert found.delay_max_ns == 20_000


def test_several_devices_are_summarised_apart(tmp_path: Path) -> None:
    events = [call(1, 1, 1), call(2, 1, 2), kernel("a", 10, 100, 1), kernel("wgmma", 10, 50, 2, stream=9, device=1)]
    rank = import_trace(write_trace(tmp_path / "t.json", [step(1, 0, 200), *events]), tmp_path / "run").rank()
    work = read_device_work(rank)
    assert work is not None
    found = [summarize_work(work.pick(work.device == device), rank, device) for device in (0, 1)]
    assert [summary.computation_ns for summary in found] == [100_000, 50_000]
    assert [summary.tensor_core_frac for summary in found] == [0.0, 1.0]
