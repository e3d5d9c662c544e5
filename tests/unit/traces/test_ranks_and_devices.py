"""What a trace tells of its rank, its collectives and its devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.manifest import Device
from collector.traces import read_trace
from tests.support.reading import read_events
from tests.support.traces import call, kernel, operator, write_trace


def test_rank_comes_from_the_file_or_its_name(tmp_path: Path) -> None:
    said = write_trace(tmp_path / "a.json", [operator("a", 0, 1)], {"distributedInfo": {"rank": 3, "world_size": 8}})
    named = write_trace(tmp_path / "host_rank12.json", [operator("a", 0, 1)])
    assert (read_trace(said).facts.rank, read_trace(said).facts.world_size) == (3, 8)
    assert read_trace(named).facts.rank == 12


@pytest.mark.parametrize(("name", "kind"), [("hipLaunchKernel", "rocm"), ("cudaLaunchKernel", "cuda")])
def test_devices_that_no_line_describes_are_those_that_kernels_name(tmp_path: Path, name: str, kind: str) -> None:
    on_second = {"device": 1}
    events = [call(0, 2, 9, name), kernel("a", 3, 1, 9), call(5, 2, 10, name), kernel("b", 8, 1, 10, **on_second)]
    read = read_events(tmp_path, events, {"deviceProperties": []})
    assert read.facts.devices == (Device(0, "", kind), Device(1, "", kind))


def test_trace_without_device_work_has_no_device(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), call(1, 1, 3, "cudaGetDeviceCount")]
    assert read_events(tmp_path, events, {"deviceProperties": []}).facts.devices == ()
