"""Lay out text tables of a run for a terminal: steps, host and device operators, device work, ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import PHASES, list_phases
from collector.format.schema.wording import form_plural
from collector.format.steps import (
    NOUN_COLUMNS,
    PERCENTILE_LABELS,
    SELECTED_COLUMNS,
    Distribution,
    StepRows,
    count_as_steps,
    explain_left_out,
    read_integers,
    select_steps,
    summarize_durations,
    summarize_steps,
    train_steps,
)

STEP_COLUMNS = (*SELECTED_COLUMNS, *NOUN_COLUMNS, *(f"{phase.name}_ns" for phase in PHASES))
NO_STEPS = "No training step and no evaluation batch was recorded."
_NO_WINDOW = "no detailed window ran. Record with Profiler(window=(10, 3))."
Row = dict[str, Any]
_NUMBERS = ("step", "device", "order")
_MOST_ROWS = 40
_MOST_STEPS = 1000
_NAME_WIDTH = 60


def describe_steps(steps: pa.Table) -> str:
    """Return as text the distribution in ms of the times of steady steps (in an inference run: of the batches that
    averages cover), and of each phase in them."""
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
    header = ("", "count", "min", "max", "mean", "median", *PERCENTILE_LABELS[1:])
    unranked = summary.duration_ns.explain_unranked(noun)
    head = " ".join(
        part for part in (f"{_name_rows(noun)}, in ms.", f"{left_out}." if left_out else "", unranked) if part
    )
    return f"{head}\n" + lay_out(header, rows)


def _spell_times(label: str, times: Distribution) -> tuple[str, ...]:
    values = (times.min, times.max, times.mean, *(value for _, value in times.list_percentiles()))
    return (label, f"{times.count:,}", *("–" if value is None else f"{value / 1e6:,.3f}" for value in values))


def describe_kernels(kernels: pa.Table) -> str:
    """Return as text the mean time per execution and the count of each kernel, longest mean first."""
    rows = _sum_by(kernels, "name", ("count", "total_ns"))
    rows.sort(key=lambda row: (-row["mean_ns"], row["name"]))
    nothing = "No device operators were recorded: nothing ran on a device inside a detailed window."
    columns = {"name": "name", "mean µs": "mean_ns", "count": "count"}
    return _render("Device operators by mean.", columns, rows, nothing)


def describe_operators(operators: pa.Table) -> str:
    """Return as text the count, total, self and mean time of each host operator in all detailed windows, longest self
    time first."""
    rows = _sum_by(operators, "name", ("count", "total_ns", "self_ns"))
    rows.sort(key=lambda row: (-row["self_ns"], row["name"]))
    columns = {"name": "name", "count": "count", "total ms": "total_ns", "self ms": "self_ns", "mean µs": "mean_ns"}
    nothing = f"No operators were recorded: {_NO_WINDOW}"
    return _render("Operators of the detailed windows by self time.", columns, rows, nothing)


def describe_host_operators(slices: pa.Table) -> str:
    """Return as text the host operators of one step, numbered from 1 in the order of their first start.

    `slices` are those of the category `operator` in all detailed steps. Only the first detailed step is used.
    """
    first = pc.min(slices["step"]).as_py()
    of_step = slices.filter(pc.equal(slices["step"], first)).select(["name", "start_ns", "duration_ns"])
    of_step = of_step.set_column(0, "name", of_step["name"].cast(pa.string()))
    of_step = of_step.sort_by([("start_ns", "ascending"), ("name", "ascending")])
    places = {name: at for at, name in reversed([*enumerate(of_step["name"].to_pylist())])}
    sums = sorted(_sum_by(of_step, "name", ("duration_ns",)), key=lambda row: places[row["name"]])
    rows = [{**row, "order": order} for order, row in enumerate(sums, 1)]
    columns = {"order": "order", "name": "name", "count": "rows", "total ms": "duration_ns"}
    title = f"Host operators of step {first} in the order of their first start."
    return _render(title, columns, rows, f"No host operators were recorded: {_NO_WINDOW}")


def describe_each_step(steps: pa.Table) -> str:
    """Return as text the first _MOST_STEPS training steps with their phases, in ms; for an inference run, batches."""
    counted = count_as_steps(steps)
    columns = {counted.noun: "step", "total": "duration_ns", **_name_phases(counted)}
    rows = train_steps(counted.steps).select([*columns.values()]).to_pylist()
    return _render(f"{_name_rows(counted.noun)} one by one, in ms.", columns, rows, NO_STEPS, _MOST_STEPS)


def describe_executions(executions: pa.Table) -> str:
    """Return as text the total, busy and waiting time of each device in each step; `executions` is the result of
    `operators.sum_executions`."""
    columns = {"step": "step", "device": "device", "executions": "count"}
    columns |= {f"{name} ms": f"{name}_ns" for name in ("total", "busy", "wait")}
    nothing = "No device work was recorded: nothing ran on a device inside a detailed window."
    return _render("Device work by step.", columns, executions.to_pylist(), nothing, _MOST_STEPS)


def describe_ranges(ranges: pa.Table) -> str:
    """Return as text the count, items, host and device time of the ranges, summed by path, longest host time first."""
    rows = _sum_by(ranges, "path", ("failed", "duration_ns", "device_ns", "total_items"))
    rows.sort(key=lambda row: -row["duration_ns"])
    columns = {"name": "path", "count": "rows", "failed": "failed"}
    columns |= {"host ms": "duration_ns", "device ms": "device_ns", "items": "total_items"}
    nothing = "No ranges were recorded: mark them with stepscope.record(name) or push_range and pop_range."
    return _render("Ranges by host time.", columns, rows, nothing)


def _sum_by(table: pa.Table, key: str, columns: Sequence[str]) -> list[Row]:
    """Return one row per value of a key, in any order, with the sums of `columns` and the number of summed `rows`.

    A row also has `mean_ns`, the total per count, if `columns` has a count.
    """
    sums = table.group_by(key, use_threads=False).aggregate([*((name, "sum") for name in columns), ([], "count_all")])
    rows = sums.rename_columns({**{f"{name}_sum": name for name in columns}, "count_all": "rows"}).to_pylist()
    return [{**row, "mean_ns": row["total_ns"] / max(row["count"], 1)} if "count" in row else row for row in rows]


def _render(title: str, columns: Mapping[str, str], rows: Sequence[Row], nothing: str, most: int = _MOST_ROWS) -> str:
    """Return a table below its title, followed by the number of omitted rows; the text `nothing` without rows.

    `columns` maps the label of a column to its key in the rows.
    """
    if not rows:
        return f"{nothing}\n"
    cells = [[_spell(label, key, row[key]) for label, key in columns.items()] for row in rows[:most]]
    rest = f"… and {len(rows) - most:,} more\n" if len(rows) > most else ""
    return f"{title}\n{lay_out(tuple(columns), cells)}{rest}"


def _spell(label: str, key: str, value: Any) -> str:
    if isinstance(value, str):
        return value if len(value) <= _NAME_WIDTH else f"{value[: _NAME_WIDTH - 21]}…{value[-20:]}"
    if key.endswith("_ns"):
        return "n/a" if value is None else f"{value / 1e3:,.1f}" if label.endswith(" µs") else f"{value / 1e6:,.3f}"
    return str(value) if key in _NUMBERS else f"{value or 0:,}"


def _name_phases(counted: StepRows) -> dict[str, str]:
    """Return the label and the column of each phase that the run can have, or has."""
    sums = {phase.name: pc.sum(counted.steps[phase.column]).as_py() for phase in PHASES}
    return {phase.label: phase.column for phase in list_phases(counted.noun, [name for name in sums if sums[name]])}


def _name_rows(noun: str) -> str:
    return "Training steps" if noun == "step" else f"{form_plural(noun).capitalize()} of inference"


def lay_out(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in aligned columns: names to the left, figures to the right."""
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
