"""Build the tables `steps` and `phases` of a trace."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.intervals import Ints
from collector.format.phases import PHASE_NAMES
from collector.traces.kineto.steps.exposed import sum_communication
from collector.traces.kineto.tables.columns import nullable
from collector.traces.kineto.tables.context import Reading

_NOT_IN_TRACES = ("fetches", "forwards", "backwards", "optimizer_steps", "skipped_updates", "loader_start_ns", "gc_ns")


def build_steps(reading: Reading) -> pa.Table:
    """Build the table `steps`: without a hole, so the time before, between and after the steps has rows as well."""
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
    """Return the rows of the table: the step of each, -1 for the time between two, from when to when."""
    steps = reading.steps
    at, last = _find_extent(reading)
    found: list[tuple[int, int, int]] = []
    bounds = reading.to_run(steps.start_ns).tolist(), reading.to_run(steps.end_ns).tolist()
    for row, (start, end) in enumerate(zip(*bounds, strict=True)):
        found += [(-1, at, start)] if start > at else []
        found.append((row, start, end))
        at = end
    found += [(-1, at, last)] if last > at else []
    spans = np.array(found, np.int64).reshape(-1, 3)
    return spans[:, 0], spans[:, 1], spans[:, 2]


def _find_extent(reading: Reading) -> tuple[int, int]:
    """Return when the work of the trace begins and ends; spans of the profiler itself do not count."""
    trace = reading.trace
    low, high, origin_ns = reading.steps.start_ns.tolist(), reading.steps.end_ns.tolist(), reading.origin_ns
    for rows in trace.find(trace.is_host_work | trace.is_device_work):
        if len(rows):
            low.append(int(trace.start_ns[rows].min()))
            high.append(int(trace.end_ns[rows].max()))
    return min(low, default=origin_ns) - origin_ns, max(high, default=origin_ns) - origin_ns
