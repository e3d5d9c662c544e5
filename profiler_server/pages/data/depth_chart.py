"""How deep one queue was over time, as a chart of the Data pipeline page."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profiler_server.analysis.data.queues import QueueKey, trace_over_time
from profiler_server.figures import Axes, Chart, Line, build_lines
from profiler_server.format import format_count, format_number_of
from profiler_server.pages.data.facts import label_queue

ROW_LIMIT = 200


def chart_depths(samples: pa.Table, key: QueueKey, chart_id: str) -> Chart:
    """Chart every sample of a queue; those that found it empty are marked."""
    trace = trace_over_time(samples, key)
    seconds = trace.starts_ns / 1e9
    empty = trace.depths == 0
    lines = [Line("depth", "data", trace.depths, "steps")]
    if trace.capacity:
        ends = np.array([seconds[0], seconds[-1]])
        lines.append(Line("capacity", "idle", np.array([trace.capacity, trace.capacity]), "dash", x=ends))
    lines.append(Line("empty", "zero", np.zeros(int(empty.sum())), "points", x=seconds[empty]))
    if trace.blocked.any():
        held = trace.depths[trace.blocked]
        lines.append(Line("next one not ready", "communication", held, "points", x=seconds[trace.blocked]))
    is_own = key.loader is None
    asked = "an item was asked for" if is_own else "the training thread asked for a batch"
    rows = list(zip(seconds, trace.steps, trace.depths, strict=True))[:ROW_LIMIT]
    return Chart(
        id=chart_id,
        title=f"{label_queue(key)}: depth over time",
        caption=f"The depth at each of {format_number_of(len(seconds), 'request')}, when {asked}; "
        f"{format_count(int(empty.sum()))} found the queue empty.",
        figure=build_lines(
            seconds, lines, Axes("time since the run's start (s)", "depth", "items" if is_own else "batches")
        ),
        columns=("Time (s)", "Step", "Depth"),
        rows=tuple((f"{at:.3f}", str(step), str(depth)) for at, step, depth in rows),
        size="medium",
    )
