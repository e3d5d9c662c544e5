"""Build the rows of the timeline: tracks, slices, counters; and the memory events.

May import numpy, pyarrow, `collector.parts` and its neighbours in this room.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from collector import parts
from collector.traces.kineto.classify import SLICE_CATEGORY, Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.collect import read_id
from collector.traces.kineto.context import Reading
from collector.traces.kineto.events import MemoryArgs
from collector.traces.kineto.lanes import Lane
from collector.traces.kineto.moments import find_operators
from collector.traces.kineto.tables import LARGEST_SMALL, clean, encode, nullable

_CPU = 0
_MOST_BYTES = 1 << 60
_KIND_ORDER = {"thread": 0, "stream": 1, "annotation": 2}


def build_slices(reading: Reading) -> pa.Table:
    """Build the table `slices`, sorted by start; the id of a slice is its row."""
    trace = reading.trace
    order = np.lexsort((trace.nesting.depth, trace.lanes.track, trace.start_ns))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    track = number_tracks(reading)[trace.lanes.track[order]]
    step, outside = reading.number_steps(reading.step_row[order])
    operator = trace.links.operator[order]
    correlation = trace.columns.correlation[order]
    categories = [SLICE_CATEGORY[kind] for kind in Kind]
    return parts.build_table(
        "slices",
        {
            "id": np.arange(len(order)),
            "track": track.astype(np.int32),
            "depth": trace.nesting.depth[order].astype(np.int32),
            "start_ns": reading.to_run(trace.start_ns[order]),
            "duration_ns": trace.columns.duration_ns[order],
            "name": encode(trace.columns.name[order], trace.names),
            "category": encode(trace.kinds.kind[order].astype(np.int64), categories),
            "step": nullable(step, outside),
            "correlation": nullable(correlation, correlation <= 0),
            "parent": _refer(trace.nesting.parent[order], place),
            "launched_by": _refer(trace.links.launch[order], place),
            "operator": encode(np.where(operator >= 0, trace.columns.name[operator], -1), trace.names),
            "sequence": nullable(trace.columns.sequence[order]),
            "args": encode(trace.columns.args[order], trace.arguments.as_json()),
        },
    )


def build_tracks(reading: Reading) -> pa.Table:
    """Build the table `tracks`: threads with the busiest process first, streams, annotations, counters."""
    rows: list[dict[str, Any]] = []
    lanes = reading.trace.lanes.lanes
    for order, lane in enumerate(_order_lanes(reading)):
        entry = dataclasses.asdict(lanes[lane])
        entry["name"], entry["process"] = clean(entry["name"]), clean(entry["process"])
        rows.append({**entry, "track": order, "order": order, "unit": ""})
    for name, (process, unit) in _list_counters(reading).items():
        track = len(rows)
        rows.append({"track": track, "kind": "counter", "name": name, "process": process, "order": track, "unit": unit})
    return parts.build_table_from_rows("tracks", rows)


def number_tracks(reading: Reading) -> Ints:
    """Return the track of each lane."""
    numbers = np.empty(len(reading.trace.lanes.lanes), np.int64)
    numbers[_order_lanes(reading)] = np.arange(len(numbers))
    return numbers


def _order_lanes(reading: Reading) -> list[int]:
    lanes = reading.trace.lanes.lanes
    busy = np.bincount(reading.trace.lanes.track, minlength=len(lanes))

    def key(lane: int) -> tuple[Any, ...]:
        entry: Lane = lanes[lane]
        device = entry.device if entry.device is not None else -1
        stream = entry.stream if entry.stream is not None else -1
        return (0 if entry.kind == "thread" else 1, device, stream, _KIND_ORDER[entry.kind], -int(busy[lane]), lane)

    return sorted(range(len(lanes)), key=key)


def build_memory(reading: Reading) -> pa.Table:
    """Build the table `memory` from the allocator's events; the host is device -1."""
    log = reading.trace.log
    events = sorted(log.memory, key=lambda entry: entry[0])
    if not events:
        return parts.arrow_schema("memory").empty_table()
    times = np.array([entry[0] for entry in events], np.int64)
    step, outside = reading.number_steps(reading.steps.locate(times))
    values = [entry[2] for entry in events]
    devices = [_find_device(value) for value in values]
    operator = find_operators(reading, times, np.array([entry[1] for entry in events], np.int64))
    return parts.build_table(
        "memory",
        {
            "start_ns": reading.to_run(times),
            "step": nullable(step, outside),
            "device": devices,
            "allocated_bytes": _sum_allocated(values, devices),
            "reserved_bytes": [None if v.reserved is None else max(read_id(v.reserved), 0) for v in values],
            "change_bytes": [read_id(v.change) for v in values],
            "address": [None if v.address is None else read_id(v.address) for v in values],
            "operator": encode(np.where(operator >= 0, reading.trace.columns.name[operator], -1), reading.trace.names),
        },
    )


def _find_device(value: MemoryArgs) -> int:
    """Return the device of an allocation, -1 for the host."""
    number = read_id(value.device)
    return -1 if read_id(value.device_type) == _CPU else number if 0 <= number <= LARGEST_SMALL else 0


def _sum_allocated(values: list[MemoryArgs], devices: list[int]) -> list[int]:
    """Return what is allocated after each event; old files only have the changes, so those are summed per device."""
    running: dict[int, int] = {}
    allocated = []
    for value, device in zip(values, devices, strict=True):
        known = None if value.allocated is None else read_id(value.allocated)
        held = known if known is not None else running.get(device, 0) + read_id(value.change)
        running[device] = max(min(held, _MOST_BYTES), -_MOST_BYTES)
        allocated.append(running[device])
    return allocated


def build_counters(reading: Reading, memory: pa.Table) -> pa.Table:
    """Build the table `counters`: allocated memory per device, and the counters of the file."""
    base = len(reading.trace.lanes.lanes)
    track_of = {name: base + index for index, name in enumerate(_list_counters(reading))}
    tracks, times, values = [], [], []
    for device, start, held in zip(
        memory["device"].to_pylist(), memory["start_ns"].to_pylist(), memory["allocated_bytes"].to_pylist(), strict=True
    ):
        tracks.append(track_of[_memory_label(device)])
        times.append(start)
        values.append(float(held))
    for process, name, time_ns, value in reading.trace.log.counters:
        tracks.append(track_of[f"{process}: {name}"])
        times.append(time_ns - reading.origin_ns)
        values.append(value)
    order = np.argsort(np.array(times, np.int64), kind="stable")
    return parts.build_table(
        "counters",
        {
            "track": np.array(tracks, np.int32)[order],
            "start_ns": np.array(times, np.int64)[order],
            "value": np.array(values, np.float64)[order],
        },
    )


def _list_counters(reading: Reading) -> dict[str, tuple[str, str]]:
    """Return the counters in order: label, then process and unit."""
    log = reading.trace.log
    devices = {_find_device(value) for _, _, value in log.memory}
    found = {_memory_label(device): ("Memory", "bytes") for device in sorted(devices)}
    for process, name, _, _ in log.counters:
        found[clean(f"{process}: {name}")] = (clean(process), "")
    return found


def _memory_label(device: int) -> str:
    return "Host memory allocated" if device < 0 else f"GPU {device} memory allocated"


def _refer(rows: Ints, place: Ints) -> pa.Array:
    return nullable(np.where(rows >= 0, place[rows], -1))
