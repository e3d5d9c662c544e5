"""Build the rows of the timeline: steps and phases, tracks, slices, counters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.traces.kineto.classify.kinds import SLICE_CATEGORIES
from collector.traces.kineto.classify.lanes import Lane
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.steps.phases import sum_communication
from collector.traces.kineto.tables.context import BATCH_ROWS, Reading, encode, nullable
from collector.traces.kineto.tables.memory import find_devices, read_memory

_NOT_IN_TRACES = ("fetches", "forwards", "backwards", "optimizer_steps", "skipped_updates", "loader_start_ns", "gc_ns")


def build_steps(reading: Reading) -> pa.Table:
    """Build the table `steps`, without gaps: the time before, between and after the steps has rows too."""
    steps = reading.steps
    row, start, end = _list_spans(reading)
    is_step, count = row >= 0, len(row)
    number = np.append(0, steps.number)[np.maximum.accumulate(row) + 1]
    sums = reading.phases.sums(len(steps))
    phases = {f"{name}_ns": np.append(sums[name], 0)[row] for name in PHASE_NAMES}
    phases["gap_ns"] += np.where(is_step, 0, end - start)
    communication = sum_communication(reading.trace, steps)
    columns = (
        {}
        if communication is None
        else {"communication_total_ns": nullable(np.append(communication, 0)[row], ~is_step)}
    )
    kinds = zip(is_step.tolist(), number.tolist(), strict=True)
    return parts.build_table(
        "steps",
        {
            "index": np.arange(count),
            "step": number,
            "kind": ["train" if is_train else "rest" if known else "startup" for is_train, known in kinds],
            "start_ns": start,
            "duration_ns": end - start,
            **phases,
            **dict.fromkeys(_NOT_IN_TRACES, np.zeros(count, np.int64)),
            "detailed": np.ones(count, bool),
            "markers": is_step & steps.markers,
            **columns,
        },
    )


def build_phases(reading: Reading) -> pa.Table:
    """Build the table `phases`; `index` refers to the rows of the table `steps`."""
    phases = reading.phases
    return parts.build_table(
        "phases",
        {
            "step": reading.steps.number[phases.step],
            "index": np.flatnonzero(_list_spans(reading)[0] >= 0)[phases.step],
            "phase": [PHASE_NAMES[code] for code in phases.phase.tolist()],
            "start_ns": reading.to_run(phases.start_ns),
            "duration_ns": phases.end_ns - phases.start_ns,
        },
    )


def _list_spans(reading: Reading) -> tuple[Ints, Ints, Ints]:
    """Return row in `reading.steps` (-1 outside of steps), start and end for each row of the table `steps`."""
    begin, end = _find_extent(reading)
    bounds = np.stack([reading.to_run(reading.steps.start_ns), reading.to_run(reading.steps.end_ns)], axis=1)
    # Every second span is a step. The other spans lie between steps and may be empty.
    edges = np.concatenate([[begin], bounds.ravel(), [end]])
    row = np.full(len(edges) - 1, -1)
    row[1::2] = np.arange(len(bounds))
    kept = (row >= 0) | (edges[1:] > edges[:-1])
    return row[kept], edges[:-1][kept], edges[1:][kept]


def _find_extent(reading: Reading) -> tuple[int, int]:
    trace = reading.trace
    low, high, origin_ns = reading.steps.start_ns.tolist(), reading.steps.end_ns.tolist(), reading.origin_ns
    for rows in trace.find(trace.is_host_work | trace.is_device_work):
        if len(rows):
            low.append(int(trace.start_ns[rows].min()))
            high.append(int(trace.end_ns[rows].max()))
    return min(low, default=origin_ns) - origin_ns, max(high, default=origin_ns) - origin_ns


_SHOWN_KEPT = 1 << 14
_KIND_ORDER = {"thread": 0, "stream": 1, "annotation": 2}


def stream_slices(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Build the table `slices` batch by batch, sorted by start; the id of a slice is its row."""
    trace = reading.trace
    order, place = trace.order, _find_places(trace)
    shown = lru_cache(_SHOWN_KEPT)(trace.arguments.show)
    tracks = _number_tracks(reading)
    for block in trace.log.scratch.blocks(len(order), BATCH_ROWS):
        rows = order[block]
        yield _build_batch(reading, rows, (tracks, place, shown), block.start)


def _find_places(trace: Trace) -> Ints:
    place = trace.log.scratch.array(len(trace.order), 0)
    for block in trace.log.scratch.blocks(len(place)):
        place[trace.order[block]] = np.arange(block.start, block.stop)
    return place


def _build_batch(
    reading: Reading, rows: Ints, found: tuple[Ints, Ints, Callable[[int], str | None]], first: int
) -> pa.RecordBatch:
    trace = reading.trace
    tracks, place, shown = found
    operator = trace.operator[rows]
    correlation = trace.columns.correlation[rows]
    table = parts.build_table(
        "slices",
        {
            "id": np.arange(first, first + len(rows)),
            "track": tracks[trace.lanes.track[rows]].astype(np.int32),
            "depth": trace.nesting.depth[rows].astype(np.int32),
            "start_ns": reading.to_run(trace.start_ns[rows]),
            "duration_ns": trace.columns.duration_ns[rows],
            "name": encode(trace.columns.name[rows], trace.find_name),
            "category": encode(trace.kind[rows].astype(np.int64), SLICE_CATEGORIES.__getitem__),
            "step": reading.number_steps(reading.step_row[rows]),
            "correlation": nullable(correlation, correlation <= 0),
            "parent": _refer(trace.nesting.parent[rows], place),
            "launched_by": _refer(trace.launch[rows], place),
            "operator": encode(np.where(operator >= 0, trace.columns.name[operator], -1), trace.find_name),
            "sequence": nullable(trace.columns.sequence[rows]),
            "args": encode(trace.columns.args[rows], shown),
        },
    )
    return table.combine_chunks().to_batches()[0]


def build_tracks(reading: Reading) -> pa.Table:
    """Build the table `tracks`: threads, the busiest first; streams and their annotations; counters."""
    rows: list[dict[str, Any]] = []
    lanes = reading.trace.lanes.lanes
    for order, lane in enumerate(_order_lanes(reading)):
        rows.append({**dataclasses.asdict(lanes[lane]), "track": order, "order": order, "unit": ""})
    for name, (process, unit) in _list_counters(reading).items():
        track = len(rows)
        rows.append({"track": track, "kind": "counter", "name": name, "process": process, "order": track, "unit": unit})
    return parts.build_table_from_rows("tracks", rows)


def _number_tracks(reading: Reading) -> Ints:
    numbers = np.empty(len(reading.trace.lanes.lanes), np.int64)
    numbers[_order_lanes(reading)] = np.arange(len(numbers))
    return numbers


def _order_lanes(reading: Reading) -> list[int]:
    lanes = reading.trace.lanes.lanes
    track = reading.trace.lanes.track
    counts = (np.bincount(track[rows], minlength=len(lanes)) for rows in reading.trace.log.scratch.blocks(len(track)))
    busy = sum(counts, np.zeros(len(lanes)))

    def key(lane: int) -> tuple[Any, ...]:
        entry: Lane = lanes[lane]
        device = entry.device if entry.device is not None else -1
        stream = entry.stream if entry.stream is not None else -1
        return (0 if entry.kind == "thread" else 1, device, stream, _KIND_ORDER[entry.kind], -int(busy[lane]), lane)

    return sorted(range(len(lanes)), key=key)


def build_counters(reading: Reading) -> pa.Table:
    """Build the table `counters`: allocated memory per device, and the counters of the file."""
    memory = read_memory(reading.trace)
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
    """Return (process, unit) of each counter by the counter's label, in the order of the counters' tracks."""
    log = reading.trace.log
    devices = np.unique(find_devices(log.memory)).tolist()
    found = {_label_memory(device): ("Memory", "bytes") for device in devices}
    for process, name in log.counter_names:
        found[_label_counter(process, name)] = (process, "")
    return found


def _label_counter(process: str, name: str) -> str:
    return f"{process}: {name}"


def _label_memory(device: int) -> str:
    return "Host memory allocated" if device < 0 else f"GPU {device} memory allocated"


def _refer(rows: Ints, place: Ints) -> pa.Array:
    return nullable(np.where(rows >= 0, place[rows], -1))
