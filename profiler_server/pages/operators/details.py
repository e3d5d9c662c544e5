"""What opens below a row: the operators of a type or a module, and the shapes and steps of an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.lens import StepRange
from collector.format.run import RankRun
from profiler_server.analysis.operators.operator_groups import Measure, within_steps
from profiler_server.analysis.operators.operators import read_operators, sum_operators
from profiler_server.format import format_count, format_duration, format_share, shorten_middle

CHILD_LIMIT = 50
DETAIL_LIMIT = 30


@dataclass(frozen=True)
class DetailTable:
    """A small table of formatted text. `left_out` says how many rows are not shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


@dataclass(frozen=True)
class OperatorDetail:
    """Where the time of one operator went."""

    shapes: DetailTable
    steps: DetailTable
    stack: str


def read_operator_detail(rank: RankRun, name: str, measure: Measure, steps: StepRange | None) -> OperatorDetail:
    """Sum one operator by input shape and by step. Raises as `RankRun.table` does."""
    keys = ("input_shapes", "input_dtypes", "call_stack")
    rows = within_steps(read_operators(rank, keys), steps)
    rows = rows.filter(pc.equal(rows["name"], name))
    shapes = sum_operators(rows, ("input_shapes", "input_dtypes"))
    stacks = sum_operators(rows, ("call_stack",))["call_stack"].drop_null()
    return OperatorDetail(
        shapes=_tabulate_shapes(shapes, measure),
        steps=_tabulate_steps(sum_operators(rows, ("step",)).sort_by("step"), measure),
        stack=stacks[0].as_py()[:4000] if len(stacks) else "",
    )


def _tabulate_shapes(shapes: pa.Table, measure: Measure) -> DetailTable:
    total, own = _name_times(measure)
    whole = sum(shapes[own].to_pylist()) or 1
    has_flops = shapes["flops"].null_count < len(shapes)
    rows = []
    for row in shapes.slice(0, DETAIL_LIMIT).to_pylist():
        figures = (format_duration(row[total]), format_duration(row[total] / row["count"] if row["count"] else None))
        flops = (_format_rate(row["flops"], row[own]),) if has_flops else ()
        shape = row["input_shapes"] or "not recorded"
        share = format_share(row[own] / whole)
        dtype = row["input_dtypes"] or ""
        rows.append(
            (_join(shape, dtype), format_count(row["count"]), *figures, format_duration(row[own]), share, *flops)
        )
    columns = ("Input shapes", "Calls", "Total", "Average", "Self", "Share of it")
    left_out = max(0, len(shapes) - DETAIL_LIMIT)
    return DetailTable("By input shape", (*columns, *(("FLOP/s",) if has_flops else ())), tuple(rows), left_out)


def _tabulate_steps(steps: pa.Table, measure: Measure) -> DetailTable:
    total, own = _name_times(measure)
    rows = tuple(
        (
            "outside of every step" if row["step"] is None else str(row["step"]),
            format_count(row["count"]),
            format_duration(row[total]),
            format_duration(row[own]),
        )
        for row in steps.slice(0, DETAIL_LIMIT).to_pylist()
    )
    return DetailTable("By step", ("Step", "Calls", "Total", "Self"), rows, max(0, len(steps) - DETAIL_LIMIT))


def _name_times(measure: Measure) -> tuple[str, str]:
    return ("device_total_ns", "device_self_ns") if measure == "device" else ("total_ns", "self_ns")


def _format_rate(flops: float | None, time_ns: int) -> str:
    if not flops or not time_ns:
        return "n/a"
    rate = flops / time_ns  # operations per ns are 1e9 per second
    return f"{rate / 1000:.2f} TFLOP/s" if rate >= 1000 else f"{rate:.2f} GFLOP/s"


def _join(shape: Any, dtype: Any) -> str:
    return shorten_middle(f"{shape} {dtype}".strip(), 160)
