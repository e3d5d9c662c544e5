"""What a trace tells of its rank, its collectives and its devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.manifest import Device
from collector.traces import read_trace
from tests.support.reading import read_events
from tests.support.traces import annotation, call, kernel, operator, step, write_trace


def test_rank_comes_from_the_file_or_its_name(tmp_path: Path) -> None:
    said = write_trace(tmp_path / "a.json", [operator("a", 0, 1)], {"distributedInfo": {"rank": 3, "world_size": 8}})
    named = write_trace(tmp_path / "host_rank12.json", [operator("a", 0, 1)])
    assert (read_trace(said).facts.rank, read_trace(said).facts.world_size) == (3, 8)
    assert read_trace(named).facts.rank == 12


def test_host_collective_is_exposed_where_no_operator_runs_beside_it(tmp_path: Path) -> None:
    gloo = {**annotation("gloo:all_reduce", 20, 60), "tid": 101}
    events = [step(1, 0, 100), operator("aten::mm", 30, 20), operator("c10d::wait_tensor", 60, 20), gloo]
    (row,) = read_events(tmp_path, events).tables["steps"].to_pylist()
    assert row["communication_ns"] == 40_000


@pytest.mark.parametrize(("name", "kind"), [("hipLaunchKernel", "rocm"), ("cudaLaunchKernel", "cuda")])
def test_devices_that_no_line_describes_are_those_that_kernels_name(tmp_path: Path, name: str, kind: str) -> None:
    on_second = {"device": 1}
    events = [call(0, 2, 9, name), kernel("a", 3, 1, 9), call(5, 2, 10, name), kernel("b", 8, 1, 10, **on_second)]
    read = read_events(tmp_path, events, {"deviceProperties": []})
    assert read.facts.devices == (Device(0, "", kind), Device(1, "", kind))


def test_trace_without_device_work_has_no_device(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), call(1, 1, 3, "cudaGetDeviceCount")]
    assert read_events(tmp_path, events, {"deviceProperties": []}).facts.devices == ()
