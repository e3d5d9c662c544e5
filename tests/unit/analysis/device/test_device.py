"""The device's time in small traces whose figures can be worked out by hand (times in microseconds)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format.run import RankRun, open_run
from collector.traces import import_trace
from profiler_server.analysis.accounting.categories import list_categories, summarize_categories
from profiler_server.analysis.device.device import summarize_device
from profiler_server.facts.machine import DeviceSummary, DeviceTimes, IdleCauses
from tests.support.runs import build_run
from tests.support.traces import Event, annotation, call, copy, kernel, operator, step, write_trace


def _import(tmp_path: Path, events: list[Event]) -> RankRun:
    return import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()


def _summarize(tmp_path: Path, events: list[Event]) -> DeviceSummary:
    found = summarize_device(_import(tmp_path, events))
    assert found is not None
    return found


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


def test_utilization_is_of_the_span_of_the_steps(tmp_path: Path) -> None:
    events = [step(1, 0, 50), step(2, 50, 50), call(1, 1, 1), call(51, 1, 2)]
    events += [kernel("a", 10, 20, 1), kernel("b", 20, 20, 1, stream=8), kernel("c", 60, 10, 2), copy(80, 10, 2)]
    assert _summarize(tmp_path, events).utilization_frac == pytest.approx(0.4)


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


def test_gaps_are_told_apart_by_their_cause(tmp_path: Path) -> None:
    calls = [call(1, 1, 1), call(2, 1, 2), call(3, 1, 3), call(200, 1, 4)]
    work = [kernel("a", 10, 10, 1), kernel("b", 30, 10, 2), kernel("c", 90, 10, 3), kernel("d", 210, 10, 4)]
    causes = _summarize(tmp_path, [step(1, 0, 300), *calls, *work]).idle_causes_ns
    assert causes == IdleCauses(host_wait=110_000, kernel_wait=10_000, other=50_000)


def test_trace_of_the_host_alone_has_no_device(tmp_path: Path) -> None:
    assert summarize_device(_import(tmp_path, [step(1, 0, 10), operator("aten::mm", 1, 5)])) is None


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
    found = list_categories(_import(tmp_path, events))
    assert found is not None
    assert {name: int(values[0]) for name, values in found.items() if values[0]} == {
        "kernel": 20_000,
        "runtime": 5_000,
        "dataloader": 30_000,
        "cpu_exec": 20_000,
        "other": 25_000,
    }


def test_work_that_fills_the_step_leaves_no_rest(tmp_path: Path) -> None:
    found = summarize_categories(_import(tmp_path, [step(1, 0, 100), call(1, 1, 1), kernel("k", 0, 100, 1)]))
    assert found is not None
    assert (found["kernel"], sum(found.values())) == (100_000, 100_000)


def test_collector_runs_count_only_the_steps_of_their_window(tmp_path: Path) -> None:
    found = list_categories(open_run(build_run(tmp_path / "run")).rank())
    assert found is not None
    assert len(found["other"]) == 3
