"""Device work of a small trace."""

from __future__ import annotations

from pathlib import Path

from collector.traces.importing import import_trace
from profiler_server.analysis.device.device import DeviceWork, read_device_work
from tests.support.traces import Event, step, write_trace


def read_work(tmp_path: Path, events: list[Event]) -> DeviceWork:
    tmp_path.mkdir(exist_ok=True)
    rank = import_trace(write_trace(tmp_path / "t.json", [step(1, 0, 900), *events]), tmp_path / "run").rank()
    work = read_device_work(rank)
    assert work is not None
    return work
