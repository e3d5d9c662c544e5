"""Waits for data that the device hides: in a trace a step lasts until its device work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.traces import import_trace
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.measuring import measure_case
from tests.support.traces import Event, annotation, call, kernel, operator, step, write_trace


def _train(device_us: float) -> list[Event]:
    """Return steps of 10 ms, half of them in the loader, whose kernel is launched after that and runs so long."""
    events: list[Event] = []
    for number in range(30):
        at = number * 10_000
        events += [
            step(number, at, 9_990),
            annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 10, 5_000),
            operator("aten::linear", at + 5_100, 600),
            call(at + 5_110, 50, number),
            kernel("gemm", at + 5_200, device_us, number),
            operator("autograd::engine::evaluate_function: AddmmBackward0", at + 6_000, 500),
            annotation("Optimizer.step#SGD.step", at + 6_600, 400),
        ]
    return events


@pytest.mark.parametrize(("device_us", "bound", "rules"), [(9_900, "compute", []), (3_000, "input", ["no_workers"])])
def test_a_wait_that_the_device_hides_bounds_nothing(
    tmp_path: Path, device_us: float, bound: str, rules: list[str]
) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", _train(device_us)), tmp_path / "run")
    found = diagnose(run, 0)
    assert found.bound_by.kind == bound
    assert [entry.rule for entry in found.suggestions if entry.severity != "info"] == rules


def test_no_wait_is_taken_out_of_the_time_that_the_device_needs(tmp_path: Path) -> None:
    run = open_run(import_trace(write_trace(tmp_path / "t.json", _train(8_000)), tmp_path / "run").path)
    case = measure_case(run, run.rank(0))
    assert case is not None
    assert case.steps.regular_phases_ns["data_wait"] > 4_000_000
    assert case.loading.wait_ns == pytest.approx(2_000_000, rel=0.05)
    assert min(entry.wall_ns for entry in case.loading.loop.model.steps) > 7_500_000
