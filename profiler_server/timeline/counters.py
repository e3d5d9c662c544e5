"""Counter tracks: the table `counters`, queue depths, and memory, as points in time order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints
from collector.format.run import RankRun
from collector.format.words import PIN_QUEUE, WORKER_QUEUE
from profiler_server.analysis.tables import choose, find_rows
from profiler_server.timeline.sources import Track

GROUP_QUEUES = "Queues"
GROUP_MEMORY = "Memory"
_QUEUE_LABELS = {WORKER_QUEUE: "worker queue", PIN_QUEUE: "pin-memory queue"}
_ALLOCATED = (("allocated_bytes", "allocated"),)
_RESERVED = (("reserved_bytes", "reserved"),)
_FIRST_ORDER = 2_100_000_000


class Series(NamedTuple):
    """One counter: a value holds until the next point."""

    track: Track
    time: Ints
    value: npt.NDArray[np.float64]


def read_counters(rank: RankRun, tracks: list[Track], first_id: int) -> list[Series]:
    """Return every counter of a rank; new tracks are numbered from `first_id`; a damaged table adds none."""
    memory = _read_memory(rank)
    found = _read_trace_counters(rank, [track for track in tracks if not (memory and _tells_memory(track))])
    for group, unit, name, time, value in [*_read_queues(rank), *memory]:
        track = Track(first_id, "counter", name, group, _FIRST_ORDER + len(found), unit)
        first_id += 1
        found.append(_sorted_series(track, time, value))
    return [series for series in found if series.time.size]


_Named = tuple[str, str, str, Ints, npt.NDArray[np.float64]]


def _read_trace_counters(rank: RankRun, tracks: list[Track]) -> list[Series]:
    counting = {track.id: track for track in tracks if track.kind == "counter"}
    data = find_rows(rank, "counters", ("track", "start_ns", "value"))
    ids = data["track"].to_numpy()
    time, value = data["start_ns"].to_numpy(), data["value"].to_numpy()
    return [_sorted_series(track, time[ids == i], value[ids == i]) for i, track in counting.items()]


def _read_queues(rank: RankRun) -> list[_Named]:
    data = find_rows(rank, "queues", ("queue", "loader", "start_ns", "depth"))
    loaders = pc.unique(pc.fill_null(data["loader"], -1)).to_pylist()
    found: list[_Named] = []
    for loader in sorted(loaders):
        of_loader = data.filter(pc.equal(pc.fill_null(data["loader"], -1), loader))
        for queue in pc.unique(of_loader["queue"].cast(pa.string())).to_pylist():
            rows = choose(of_loader, "queue", queue)
            label = _QUEUE_LABELS.get(queue, queue)
            name = f"{label}, loader {loader}" if len(loaders) > 1 and loader >= 0 else label
            found.append((GROUP_QUEUES, "items", name, rows["start_ns"].to_numpy(), _floats(rows["depth"])))
    return found


def _tells_memory(track: Track) -> bool:
    """Say whether a counter of the trace is what the table `memory` tells too, device by device."""
    return track.group == GROUP_MEMORY and track.unit == "bytes"


def _read_memory(rank: RankRun) -> list[_Named]:
    data = find_rows(rank, "memory", ("device", "start_ns", "allocated_bytes", "reserved_bytes"))
    found: list[_Named] = []
    for device in sorted(pc.unique(data["device"]).to_pylist()):
        rows = data.filter(pc.equal(data["device"], device))
        # The host has no allocator that reserves: what a trace calls so there is one mapping at a time.
        owner, told = ("host", _ALLOCATED) if device < 0 else (f"device {device}", _ALLOCATED + _RESERVED)
        for column, what in told:
            kept = rows.filter(pc.is_valid(rows[column]))
            found.append(
                (GROUP_MEMORY, "bytes", f"{owner}, {what}", kept["start_ns"].to_numpy(), _floats(kept[column]))
            )
    return found


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    # Unsafe: beyond 2**53 a number is rounded, where Arrow would rather refuse the whole timeline.
    values: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _sorted_series(track: Track, time: Ints, value: npt.NDArray[np.float64]) -> Series:
    finite = np.isfinite(value)
    time, value = time[finite], value[finite]
    order = np.argsort(time, kind="stable")
    return Series(track, time[order], value[order])
