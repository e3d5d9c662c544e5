"""Tables of a run as text for a terminal: steps, device operators, host operators."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import PHASES
from collector.format.steps import (
    PERCENTILE_LABELS,
    SELECTED_COLUMNS,
    Distribution,
    count_as_steps,
    explain_left_out,
    read_integers,
    select_steps,
    summarize_durations,
    summarize_steps,
    train_steps,
)

STEP_COLUMNS = (*SELECTED_COLUMNS, *(f"{phase.name}_ns" for phase in PHASES))
NO_STEPS = "No training step and no evaluation batch was recorded."
_MOST_ROWS = 40
_MOST_STEPS = 1000
_NAME_WIDTH = 60


def describe_steps(steps: pa.Table) -> str:
    """Return the figures of the steps that an average covers and of their phases, in ms; of a run that only infers, of its batches."""
    counted = count_as_steps(steps)
    table, noun = counted.steps, counted.noun
    summary = summarize_steps(table)
    if summary.duration_ns is None:
        return f"{NO_STEPS}\n"
    kept = train_steps(table).filter(pa.array(select_steps(table).kept))
    rows = [_spell_times(noun, summary.duration_ns)]
    for phase in PHASES:
        times = summarize_durations(read_integers(kept, f"{phase.name}_ns"))
        if times is not None and times.max > 0:
            rows.append(_spell_times(phase.label, times))
    left_out = explain_left_out(summary.left_out, noun)
    kind = "Training steps" if noun == "step" else "Evaluation batches"
    header = ("", "count", "min", "max", "mean", "median", *PERCENTILE_LABELS[1:])
    unranked = summary.duration_ns.explain_unranked(noun)
    head = " ".join(part for part in (f"{kind}, in ms.", f"{left_out}." if left_out else "", unranked) if part)
    return f"{head}\n" + lay_out(header, rows)


def _spell_times(label: str, times: Distribution) -> tuple[str, ...]:
    values = (times.min, times.max, times.mean, *(value for _, value in times.list_percentiles()))
    return (label, f"{times.count:,}", *("–" if value is None else f"{value / 1e6:,.3f}" for value in values))


def describe_kernels(kernels: pa.Table) -> str:
    """Return the mean and count of each device operator, the longest mean first."""
    sums = kernels.group_by("name", use_threads=False).aggregate([("count", "sum"), ("total_ns", "sum")])
    found = [
        (row["name"], row["count_sum"], row["total_ns_sum"] / max(row["count_sum"], 1)) for row in sums.to_pylist()
    ]
    if not found:
        return "No device operators were recorded: nothing ran on a device inside a detailed window.\n"
    found.sort(key=lambda row: (-row[2], row[0]))
    rows = [(_shorten(name), f"{mean / 1e3:,.1f}", f"{count:,}") for name, count, mean in found[:_MOST_ROWS]]
    return "Device operators by mean.\n" + lay_out(("name", "mean µs", "count"), rows) + _say_rest(len(found))


def describe_operators(operators: pa.Table) -> str:
    """Return count, total and mean of each host operator of the detailed windows, the longest self time first."""
    keys = ("count", "total_ns", "self_ns")
    sums = operators.group_by("name", use_threads=False).aggregate([(key, "sum") for key in keys]).to_pylist()
    if not sums:
        return "No operators were recorded: no detailed window ran. Record with Profiler(window=(10, 3)).\n"
    sums.sort(key=lambda row: (-row["self_ns_sum"], row["name"]))
    rows = [
        (
            _shorten(row["name"]),
            f"{row['count_sum']:,}",
            f"{row['total_ns_sum'] / 1e6:,.3f}",
            f"{row['self_ns_sum'] / 1e6:,.3f}",
            f"{row['total_ns_sum'] / max(row['count_sum'], 1) / 1e3:,.1f}",
        )
        for row in sums[:_MOST_ROWS]
    ]
    header = ("name", "count", "total ms", "self ms", "mean µs")
    return "Operators of the detailed windows by self time.\n" + lay_out(header, rows) + _say_rest(len(sums))


def describe_host_operators(slices: pa.Table) -> str:
    """Return the host operators of one step in the order in which they first began, numbered from 1.

    `slices` are those of category `operator`, of every detailed step; the first such step is shown.
    """
    inside = slices.filter(slices["step"].is_valid())
    if not inside.num_rows:
        return "No host operators were recorded: no detailed window ran. Record with Profiler(window=(10, 3)).\n"
    first = pc.min(inside["step"]).as_py()
    of_step = inside.filter(pc.equal(inside["step"], first))
    grouped = of_step.group_by("name", use_threads=False)
    sums = grouped.aggregate([("start_ns", "min"), ("duration_ns", "sum"), ("start_ns", "count")]).to_pylist()
    sums.sort(key=lambda row: (row["start_ns_min"], row["name"]))
    rows = [
        (str(order), _shorten(row["name"]), f"{row['start_ns_count']:,}", f"{row['duration_ns_sum'] / 1e6:,.3f}")
        for order, row in enumerate(sums[:_MOST_ROWS], start=1)
    ]
    header = ("order", "name", "count", "total ms")
    return (
        f"Host operators of step {first} in the order of their first start.\n"
        + lay_out(header, rows)
        + _say_rest(len(sums))
    )


def describe_each_step(steps: pa.Table) -> str:
    """Return each training step with its phases, in ms; of a run that only infers, each batch."""
    counted = count_as_steps(steps)
    taken, noun = train_steps(counted.steps), counted.noun
    if not taken.num_rows:
        return f"{NO_STEPS}\n"
    columns = ("duration_ns", *(f"{phase.name}_ns" for phase in PHASES))
    times = [read_integers(taken, column)[:_MOST_STEPS] / 1e6 for column in columns]
    rows = [
        (str(step), *(f"{values[at]:,.3f}" for values in times))
        for at, step in enumerate(taken["step"].to_pylist()[:_MOST_STEPS])
    ]
    rest = taken.num_rows - len(rows)
    kind = "Training steps" if noun == "step" else "Evaluation batches"
    header = (noun, "total", *(phase.label for phase in PHASES))
    return f"{kind} one by one, in ms.\n" + lay_out(header, rows) + (f"… and {rest:,} more\n" if rest else "")


def describe_executions(executions: pa.Table) -> str:
    """Return total, busy and wait of each device and step; `executions` is from `operators.sum_executions`."""
    if not executions.num_rows:
        return "No device work was recorded: nothing ran on a device inside a detailed window.\n"
    rows = [
        (
            str(row["step"]),
            str(row["device"]),
            f"{row['count']:,}",
            *(f"{row[key] / 1e6:,.3f}" for key in ("total_ns", "busy_ns", "wait_ns")),
        )
        for row in executions.to_pylist()[:_MOST_STEPS]
    ]
    header = ("step", "device", "executions", "total ms", "busy ms", "wait ms")
    return "Device work by step.\n" + lay_out(header, rows)


def describe_ranges(ranges: pa.Table) -> str:
    """Return count, items, host and device time of the ranges by path, the longest host time first."""
    keys = [("duration_ns", "count"), ("duration_ns", "sum"), ("device_ns", "sum"), ("total_items", "sum")]
    ranges = ranges.set_column(ranges.schema.get_field_index("failed"), "failed", ranges["failed"].cast(pa.int64()))
    sums = ranges.group_by("path", use_threads=False).aggregate([*keys, ("failed", "sum")]).to_pylist()
    if not sums:
        return "No ranges were recorded: mark them with collector.record(name) or push_range and pop_range.\n"
    sums.sort(key=lambda row: -row["duration_ns_sum"])
    rows = [
        (
            _shorten(row["path"]),
            f"{row['duration_ns_count']:,}",
            f"{row['failed_sum']:,}",
            f"{row['duration_ns_sum'] / 1e6:,.3f}",
            "n/a" if row["device_ns_sum"] is None else f"{row['device_ns_sum'] / 1e6:,.3f}",
            f"{row['total_items_sum'] or 0:,}",
        )
        for row in sums[:_MOST_ROWS]
    ]
    header = ("name", "count", "failed", "host ms", "device ms", "items")
    return "Ranges by host time.\n" + lay_out(header, rows) + _say_rest(len(sums))


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 21]}…{name[-20:]}"


def _say_rest(count: int) -> str:
    return f"… and {count - _MOST_ROWS:,} more\n" if count > _MOST_ROWS else ""


def lay_out(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay a table out in columns: names to the left, figures to the right."""
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    left = {at for at, name in enumerate(header) if name in ("", "name")}
    lines = []
    for row in (header, *rows):
        cells = (
            text.ljust(width) if at in left else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"
