"""Rows of slices and tracks that tests write by hand."""

from __future__ import annotations

import json
from typing import Any

from collector.format.run import RankRun
from profiler_server.analysis.device.device import DeviceWork, read_device_work
from tests.support.tables import write_rows


def slice_row(number: int, track: int, start_ns: int, duration_ns: int, **columns: Any) -> dict[str, Any]:
    """Return a kernel of step 1 on a track."""
    place = {"id": number, "track": track, "depth": 0, "start_ns": start_ns, "duration_ns": duration_ns}
    return {**place, "name": "k", "category": "kernel", "step": 1, **columns}


def track_rows(*kinds: str) -> list[dict[str, Any]]:
    """Return one track per kind, numbered from 0."""
    return [
        {"track": number, "kind": kind, "name": kind, "process": "", "order": number, "unit": ""}
        for number, kind in enumerate(kinds)
    ]


def write_work(rank: RankRun, *rows: dict[str, Any]) -> DeviceWork:
    """Write slices of a thread, track 0, and of two devices, tracks 1 and 2; read the work of the devices."""
    tracks = [
        row | {"device": place - 1 if place else None}
        for place, row in enumerate(track_rows("thread", *["stream"] * 2))
    ]
    write_rows(rank.run_path, "tracks", tracks)
    write_rows(rank.run_path, "slices", list(rows))
    work = read_device_work(rank)
    assert work is not None
    return work


def launch_shape(blocks_per_sm: float | str, occupancy_percent: float) -> str:
    """Return what a trace says of the shape of a kernel."""
    return json.dumps({"blocks per SM": blocks_per_sm, "est. achieved occupancy %": occupancy_percent})
