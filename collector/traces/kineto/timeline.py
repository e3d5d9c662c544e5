"""Build the rows of the timeline: tracks, slices, counters; and the memory events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.traces.kineto.classify import SLICE_CATEGORY, Kind
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.context import Reading
from collector.traces.kineto.digest import ABSENT
from collector.traces.kineto.ids import NO_ID
from collector.traces.kineto.lanes import Lane
from collector.traces.kineto.model import Trace
from collector.traces.kineto.moments import Moments
from collector.traces.kineto.scratch import blocks
from collector.traces.kineto.tables import LARGEST_SMALL, clean, encode, nullable
from collector.traces.kineto.tensors import Tensors

BATCH_ROWS = 1 << 17
_SHOWN_KEPT = 1 << 14
_CPU = 0
_HOST = -1
_MOST_BYTES = 1 << 60
_KIND_ORDER = {"thread": 0, "stream": 1, "annotation": 2}


def stream_slices(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `slices` batch by batch, sorted by start; the id of a slice is its row."""
    trace = reading.trace
    order, place = trace.order, _find_places(trace)
    trace.release()
    shown = Shown(trace)
    tracks = number_tracks(reading)
    for block in blocks(len(order), BATCH_ROWS):
        rows = order[block]
        yield _build_batch(reading, rows, (tracks, place, shown), block.start)
        trace.release()


def _find_places(trace: Trace) -> Ints:
    """Return the place of each slice in the order of the table."""
    place = trace.log.scratch.array(len(trace.order), 0)
    for block in blocks(len(place)):
        place[trace.order[block]] = np.arange(block.start, block.stop)
        trace.release()
    return place


class Shown:
    """The arguments as JSON, made when they are asked for; the last ones are kept."""

    def __init__(self, trace: Trace) -> None:
        self._make = lru_cache(_SHOWN_KEPT)(trace.arguments.show)

    def __getitem__(self, number: int) -> str | None:
        return self._make(number)


def _build_batch(reading: Reading, rows: Ints, found: tuple[Ints, Ints, Shown], first: int) -> pa.RecordBatch:
    trace = reading.trace
    tracks, place, shown = found
    step, outside = reading.number_steps(reading.step_row[rows])
    operator = trace.links.operator[rows]
    correlation = trace.columns.correlation[rows]
    table = parts.build_table(
        "slices",
        {
            "id": np.arange(first, first + len(rows)),
            "track": tracks[trace.lanes.track[rows]].astype(np.int32),
            "depth": trace.nesting.depth[rows].astype(np.int32),
            "start_ns": reading.to_run(trace.start_ns[rows]),
            "duration_ns": trace.columns.duration_ns[rows],
            "name": encode(trace.columns.name[rows], trace.names),
            "category": encode(trace.kinds.kind[rows].astype(np.int64), [SLICE_CATEGORY[kind] for kind in Kind]),
            "step": nullable(step, outside),
            "correlation": nullable(correlation, correlation <= 0),
            "parent": _refer(trace.nesting.parent[rows], place),
            "launched_by": _refer(trace.links.launch[rows], place),
            "operator": encode(np.where(operator >= 0, trace.columns.name[operator], -1), trace.names),
            "sequence": nullable(trace.columns.sequence[rows]),
            "args": encode(trace.columns.args[rows], shown),
        },
    )
    return table.combine_chunks().to_batches()[0]


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
    track = reading.trace.lanes.track
    busy = sum((np.bincount(track[rows], minlength=len(lanes)) for rows in blocks(len(track))), np.zeros(len(lanes)))

    def key(lane: int) -> tuple[Any, ...]:
        entry: Lane = lanes[lane]
        device = entry.device if entry.device is not None else -1
        stream = entry.stream if entry.stream is not None else -1
        return (0 if entry.kind == "thread" else 1, device, stream, _KIND_ORDER[entry.kind], -int(busy[lane]), lane)

    return sorted(range(len(lanes)), key=key)


@dataclasses.dataclass(frozen=True)
class _Memory:
    """The allocator's events in time order: the fields of the log, and what was worked out of them."""

    fields: dict[str, Ints]
    device: Ints
    allocated: Ints


def _read_memory(trace: Trace) -> _Memory:
    keep = trace.log.scratch.keep
    order = np.argsort(trace.log.memory["time_ns"], kind="stable")
    fields = {}
    for name, values in trace.log.memory.items():
        fields[name] = keep(values[order])
        trace.release()
    device = keep(_find_devices(fields))
    allocated = keep(_sum_allocated(fields, device))
    trace.release()
    return _Memory(fields, device, allocated)


def stream_memory(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `memory` from the allocator's events; the host is device -1."""
    memory = _read_memory(reading.trace)
    found = Moments(reading.trace, memory.fields["thread"]), Tensors(reading.trace)
    for rows in blocks(len(memory.device), BATCH_ROWS):
        yield from _build_memory(reading, memory, found, rows).to_batches()
        reading.trace.release()


def _build_memory(reading: Reading, memory: _Memory, among: tuple[Moments, Tensors], rows: slice) -> pa.Table:
    moments, tensors = among
    found = {name: values[rows] for name, values in memory.fields.items()}
    times, reserved, address = found["time_ns"], found["reserved"], found["address"]
    step, outside = reading.number_steps(reading.steps.locate(times))
    operator = moments.find(times, found["thread"])
    names = reading.trace.columns.name
    change = np.where(found["change"] == ABSENT, NO_ID, found["change"])
    held = [tensor or (None, None) for tensor in tensors.describe(operator, change)]
    return parts.build_table(
        "memory",
        {
            "start_ns": reading.to_run(times),
            "step": nullable(step, outside),
            "device": memory.device[rows],
            "allocated_bytes": memory.allocated[rows],
            "reserved_bytes": nullable(np.maximum(reserved, 0), reserved == ABSENT),
            "change_bytes": change,
            "address": nullable(address, address == ABSENT),
            "operator": encode(np.where(operator >= 0, names[operator], -1), reading.trace.names),
            "shape": [shape for shape, _ in held],
            "dtype": [dtype for _, dtype in held],
            "module": _name_owners(reading, np.where(change > 0, operator, -1)),
        },
    )


def _name_owners(reading: Reading, rows: Ints) -> list[str | None]:
    """Return the path of the module around each slice, None for none."""
    tree = reading.tree
    if not len(tree.modules):
        return [None] * len(rows)
    modules = np.where(rows >= 0, tree.module[rows], -1)
    paths = {code: tree.module_path(code) for code in np.unique(modules).tolist() if code >= 0}
    return [paths.get(code) for code in modules.tolist()]


def _find_devices(memory: dict[str, Ints]) -> Ints:
    """Return the device of each allocation, -1 for the host."""
    number = memory["device"]
    known = np.where((number >= 0) & (number <= LARGEST_SMALL), number, 0)
    return np.where(memory["device_type"] == _CPU, _HOST, known)


def _sum_allocated(memory: dict[str, Ints], device: Ints) -> Ints:
    """Return what is allocated after each event; old files only have the changes, so those are summed per device."""
    change = np.clip(np.where(memory["change"] == ABSENT, NO_ID, memory["change"]), -_MOST_BYTES, _MOST_BYTES)
    allocated = memory["allocated"].copy()
    for number in np.unique(device).tolist():
        mine = np.flatnonzero(device == number)
        told = allocated[mine] != ABSENT
        # From each event that tells the total, the changes after it are added to that total.
        last = np.maximum.accumulate(np.where(told, np.arange(len(mine)), -1))
        sums = np.cumsum(change[mine].astype(np.float64)) if _overflows(change[mine]) else np.cumsum(change[mine])
        base = np.where(last >= 0, np.where(told, allocated[mine], 0)[last] - sums[last], 0)
        allocated[mine] = np.where(told, allocated[mine], np.clip(base + sums, -_MOST_BYTES, _MOST_BYTES))
    return np.clip(allocated, -_MOST_BYTES, _MOST_BYTES)


def _overflows(values: Ints) -> bool:
    """Say whether sums of the values may not fit 64 bits, as only broken files have them."""
    return bool(np.abs(values.astype(np.float64)).sum() > _MOST_BYTES)


def build_counters(reading: Reading) -> pa.Table:
    """Build the table `counters`: allocated memory per device, and the counters of the file."""
    memory = _read_memory(reading.trace)
    base = len(reading.trace.lanes.lanes)
    track_of = {name: base + index for index, name in enumerate(_list_counters(reading))}
    devices, places = np.unique(memory.device, return_inverse=True)
    label = np.array([track_of[_label_memory(device)] for device in devices.tolist()], np.int32)
    number, times, values = reading.trace.log.counters
    own = np.array([track_of[_label_counter(*key)] for key in reading.trace.log.counter_names], np.int32)
    tracks = np.concatenate([label[places], own[number]])
    starts = np.concatenate([memory.fields["time_ns"], times]) - reading.origin_ns
    order = np.argsort(starts, kind="stable")
    return parts.build_table(
        "counters",
        {
            "track": tracks[order],
            "start_ns": starts[order],
            "value": np.concatenate([memory.allocated.astype(np.float64), values])[order],
        },
    )


def _list_counters(reading: Reading) -> dict[str, tuple[str, str]]:
    """Return the counters in order: label, then process and unit."""
    log = reading.trace.log
    devices = np.unique(_find_devices(log.memory)).tolist()
    found = {_label_memory(device): ("Memory", "bytes") for device in devices}
    for process, name in log.counter_names:
        found[_label_counter(process, name)] = (clean(process), "")
    return found


def _label_counter(process: str, name: str) -> str:
    return clean(f"{process}: {name}")


def _label_memory(device: int) -> str:
    return "Host memory allocated" if device < 0 else f"GPU {device} memory allocated"


def _refer(rows: Ints, place: Ints) -> pa.Array:
    return nullable(np.where(rows >= 0, place[rows], -1))
