"""Build the tables `steps` and `phases` of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.traces.kineto.context import Reading
from collector.traces.kineto.exposed import sum_communication


def build_steps(reading: Reading) -> pa.Table:
    """Build the table `steps`: without a hole, so the time before, between and after the steps has rows as well."""
    steps = reading.steps
    sums = reading.phases.sums(len(steps))
    communication = sum_communication(reading.trace, steps)
    rows: list[dict[str, Any]] = []
    (at, last), number = _find_extent(reading), 0
    starts, ends = reading.to_run(steps.start_ns).tolist(), reading.to_run(steps.end_ns).tolist()
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start > at:
            rows.append({**_make_filler(number, at, start), "index": len(rows)})
        number = int(steps.number[row])
        phases = {f"{name}_ns": int(sums[name][row]) for name in PHASE_NAMES}
        entry = {**_make_row("train", number, start, end, phases), "index": len(rows), "markers": steps.markers}
        total_ns = None if communication is None else int(communication[row])
        rows.append({**entry, "communication_total_ns": total_ns})
        at = end
    if last > at:
        rows.append({**_make_filler(number, at, last), "index": len(rows)})
    return parts.build_table_from_rows("steps", rows)


def build_phases(reading: Reading, steps: pa.Table) -> pa.Table:
    """Build the table `phases`; `index` refers to the rows of `steps`."""
    phases = reading.phases
    train = np.flatnonzero(np.array([kind == "train" for kind in steps["kind"].to_pylist()], bool))
    return parts.build_table(
        "phases",
        {
            "step": reading.steps.number[phases.step],
            "index": train[phases.step],
            "phase": [PHASE_NAMES[code] for code in phases.phase.tolist()],
            "start_ns": reading.to_run(phases.start_ns),
            "duration_ns": phases.end_ns - phases.start_ns,
        },
    )


def _find_extent(reading: Reading) -> tuple[int, int]:
    """Return when the work of the trace begins and ends; spans of the profiler itself do not count."""
    trace = reading.trace
    low, high, origin_ns = reading.steps.start_ns.tolist(), reading.steps.end_ns.tolist(), reading.origin_ns
    for rows in trace.find(trace.is_host_work | trace.is_device_work):
        if len(rows):
            low.append(int(trace.start_ns[rows].min()))
            high.append(int(trace.end_ns[rows].max()))
    return min(low, default=origin_ns) - origin_ns, max(high, default=origin_ns) - origin_ns


def _make_filler(number: int, start: int, end: int) -> dict[str, Any]:
    phases = dict.fromkeys((f"{name}_ns" for name in PHASE_NAMES), 0)
    phases["gap_ns"] = end - start
    return _make_row("rest" if number else "startup", number, start, end, phases)


def _make_row(kind: str, number: int, start: int, end: int, phases: dict[str, int]) -> dict[str, Any]:
    counts = dict.fromkeys(("fetches", "forwards", "backwards", "optimizer_steps", "skipped_updates"), 0)
    return {
        "step": number,
        "kind": kind,
        "start_ns": start,
        "duration_ns": end - start,
        **phases,
        **counts,
        "loader_start_ns": 0,
        "gc_ns": 0,
        "detailed": True,
        "markers": False,
    }
