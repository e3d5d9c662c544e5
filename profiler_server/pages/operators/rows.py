"""The rows of the Operators page, and the details below an opened row: member operators, input shapes, steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.lens import StepRange
from collector.format.run import RankRun
from profiler_server.analysis.operators.kernels import name_kernels
from profiler_server.analysis.operators.operator_groups import (
    GROUPS,
    GroupTable,
    Measure,
    tabulate_members,
    within_steps,
)
from profiler_server.analysis.operators.operators import read_operators, sum_operators
from profiler_server.format import ABSENT, format_count, format_duration, format_rate, format_share, shorten_middle
from profiler_server.pages.operators.state import PageState, find_key, shorten_key
from profiler_server.widgets import TextTable

Kind = Literal[
    "name", "text", "count", "order", "duration", "share", "fraction", "flag", "flop_rate", "byte_rate", "ratio"
]


@dataclass(frozen=True)
class Column:
    """One column: `name` in the Arrow table of the group, `label` on the page, `hint` its meaning."""

    name: str
    label: str
    kind: Kind
    hint: str = ""

    @property
    def falls_first(self) -> bool:
        """Return whether the first click on the head sorts the column in descending order."""
        return self.kind not in ("name", "text", "order")


@dataclass(frozen=True)
class Cell:
    """One value as shown. `whole` is the full text of a shortened `text`, else "". `bar` is a percentage, None for no
    bar.

    `query` is the URL query that opens the operator which the value names, None for no link."""

    kind: Kind
    text: str
    whole: str = ""
    bar: float | None = None
    query: Mapping[str, str] | None = None


_CALLS = Column("count", "Calls", "count", "How often it was called in the {nouns} covered")
_HOST = (
    Column("total_ns", "Total", "duration", "Host time with callees"),
    Column("mean_ns", "Average", "duration", "Total host time per call"),
    Column("self_ns", "Self", "duration", "Host time without callees"),
    Column("share_frac", "Share", "share", "Part of the host self time of all operators"),
)
_DEVICE = (
    Column("device_total_ns", "Device total", "duration", "Device time of the kernels of it and its callees"),
    Column("mean_ns", "Average", "duration", "Total device time per call"),
    Column("device_self_ns", "Device self", "duration", "Device time of the kernels that it launched itself"),
    Column("share_frac", "Share", "share", "Part of the device self time of all operators"),
    Column("self_ns", "Host self", "duration", "Host time without callees"),
)
_TYPE = Column("type", "Type", "text")
_KERNELS = (
    Column("name", "Kernel", "name"),
    Column("operator", "Operator", "text", "Operator that launched it"),
    Column("count", "Count", "count", "Executions"),
    Column("total_ns", "Total", "duration"),
    Column("share_frac", "Share", "share", "Part of the time of all kernels"),
    Column("mean_ns", "Average", "duration"),
    Column("min_ns", "Min", "duration"),
    Column("max_ns", "Max", "duration"),
    Column("occupancy_frac", "Occ.", "fraction", "Estimated achieved occupancy, weighted by time"),
    Column("tensor_core", "TC", "flag", "Its name says that it uses tensor cores"),
    Column("stream", "Stream", "order"),
    Column("grid", "Grid", "text", "Blocks of a launch"),
    Column("block", "Block", "text", "Threads of a block"),
)
_ROOFLINE = (
    Column("name", "Operator", "name"),
    _TYPE,
    Column(
        "precision",
        "Precision",
        "text",
        "Of its first floating-point input. int: integers; list: a list of tensors, whose dtype is not in the trace, taken as FP32",
    ),
    Column("count", "Calls", "count", "Calls whose shapes are recorded"),
    Column("time_ns", "Time", "duration", "Device self time, or host self time without a device"),
    Column("share_frac", "Share", "share", "Part of the self time of all operators"),
    Column("flops_per_s", "Achieved", "flop_rate", "Operations from the shapes over the time"),
    Column("bytes_per_s", "Traffic", "byte_rate", "Least bytes from the shapes over the time"),
    Column("intensity", "FLOP/byte", "ratio", "Arithmetic intensity: operations over least bytes"),
    Column("bound", "Bound", "text", "What limits it on this device: its arithmetic or its memory"),
    Column("efficiency_frac", "Efficiency", "fraction", "Least time on this device over the time taken"),
)


def list_columns(group: str, measure: Measure) -> tuple[Column, ...]:
    times = _DEVICE if measure == "device" else _HOST
    if group == "types":
        return (Column("type", "Type", "name"), Column("operators", "Operators", "count"), _CALLS, *times)
    if group == "kernels":
        return _KERNELS
    if group == "roofline":
        return _ROOFLINE
    if group == "host":
        order = Column("order", "Order", "order", "Place among the first calls of the first {noun} covered")
        return (order, Column("name", "Operator", "name"), _TYPE, _CALLS, *_HOST)
    if group == "modules":
        return (Column("module", "Module", "name"), _CALLS, *times)
    return (Column("name", "Operator", "name"), _TYPE, _CALLS, *times)


SORTABLE: Mapping[str, tuple[str, ...]] = {
    group: tuple({column.name: None for measure in ("host", "device") for column in list_columns(group, measure)})
    for group in GROUPS
}
"""Columns that a group can be sorted by, for time on the host or on the device."""


def build_cell(column: Column, value: Any, bar_whole: float, name: str | None = None) -> Cell:
    """Return `value` as text in a cell. `bar_whole` is the share (0 to 1) that fills the whole bar. `name` is the short
    form of a kernel's name."""
    if value is None:
        return Cell(column.kind, ABSENT if column.kind != "name" else "(no name)")
    write = _WRITERS.get(column.kind)
    if write is None:
        text = str(value)
        shown = shorten_middle(text or "(no name)", 56 if column.kind == "name" else 26)
        shown = name if name is not None and column.kind == "name" else shown
        return Cell(column.kind, shown, whole=text[:2000] if shown != text else "")
    bar = round(100.0 * value / (bar_whole or 1.0), 2) if column.kind == "share" else None
    return Cell(column.kind, write(value), bar=bar)


_WRITERS: Mapping[Kind, Callable[[Any], str]] = {
    "duration": format_duration,
    "share": format_share,
    "fraction": format_share,
    "count": format_count,
    "flop_rate": lambda value: format_rate(value or None, "FLOP/s"),
    "byte_rate": lambda value: format_rate(value or None, "B/s"),
    "ratio": lambda value: f"{value:,.3g}" if value < 1000 else format_count(round(value)),
    "flag": lambda value: "yes" if value else "no",
}


KERNEL_LETTERS = 160
_SHORT = "short_name"
"""The key of a kernel's short name among the values of its row."""
DETAIL_LIMIT = 30


@dataclass(frozen=True)
class OperatorDetail:
    """The times of one operator by input shape and by step. `stack` is one of its call stacks, "" if none is known."""

    shapes: TextTable
    steps: TextTable
    stack: str


def read_operator_detail(rank: RankRun, name: str, measure: Measure, steps: StepRange | None) -> OperatorDetail:
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


def _tabulate_shapes(shapes: pa.Table, measure: Measure) -> TextTable:
    total, own = _name_times(measure)
    whole = sum(shapes[own].to_pylist()) or 1
    has_flops = shapes["flops"].null_count < len(shapes)
    rows = []
    for row in shapes.slice(0, DETAIL_LIMIT).to_pylist():
        figures = (format_duration(row[total]), format_duration(row[total] / row["count"] if row["count"] else None))
        rate = row["flops"] / row[own] * 1e9 if row["flops"] and row[own] else None
        flops = (format_rate(rate, "FLOP/s"),) if has_flops else ()
        shape = shorten_middle(f"{row['input_shapes'] or 'not recorded'} {row['input_dtypes'] or ''}".strip(), 160)
        share = format_share(row[own] / whole)
        rows.append((shape, format_count(row["count"]), *figures, format_duration(row[own]), share, *flops))
    columns = ("Input shapes", "Calls", "Total", "Average", "Self", "Share of it")
    left_out = max(0, len(shapes) - DETAIL_LIMIT)
    return TextTable("By input shape", (*columns, *(("FLOP/s",) if has_flops else ())), tuple(rows), left_out=left_out)


def _tabulate_steps(steps: pa.Table, measure: Measure) -> TextTable:
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
    return TextTable("By step", ("Step", "Calls", "Total", "Self"), rows, left_out=max(0, len(steps) - DETAIL_LIMIT))


def _name_times(measure: Measure) -> tuple[str, str]:
    return ("device_total_ns", "device_self_ns") if measure == "device" else ("total_ns", "self_ns")


CHILD_LIMIT = 50
_MEMBER_GROUPS = ("types", "modules")
_OPERATOR_GROUPS = ("operators", "host")


@dataclass(frozen=True)
class Row:
    """One row. `toggle` is the URL query that opens or closes its details, None for a row without details.

    `level` is 1 for an operator below its type or module, else 0. `search` is the search text for the timeline, "" for
    none. A row with a `note` has no cells: it is the last below its type, and the note counts the operators left out.
    """

    cells: tuple[Cell, ...]
    level: int
    toggle: Mapping[str, str] | None
    is_open: bool
    search: str
    detail: OperatorDetail | None = None
    note: str = ""


@dataclass(frozen=True)
class RowBuilder:
    """A builder of the rows of one table. `top_share_frac` is the share that fills a whole bar."""

    rank: RankRun
    state: PageState
    group: GroupTable
    columns: tuple[Column, ...]
    top_share_frac: float

    def build(self, rows: pa.Table) -> tuple[Row, ...]:
        """Return the rows of one page of the table. The members of the row that the URL opens follow that row."""
        key = GROUPS[self.state.group].name
        built: list[Row] = []
        opened_key = self.state.type if self.state.group in _MEMBER_GROUPS else self.state.operator
        opened = find_key(opened_key, rows[key].to_pylist())
        short = self._name_kernels(rows)
        for values in rows.to_pylist():
            name = values[key]
            is_open = opened is not None and name == opened
            values[_SHORT] = short.get(name)
            built.append(self._build_row(values, name, is_open))
            if is_open and self.state.group in _MEMBER_GROUPS:
                built.extend(self._build_members(name))
        return tuple(built)

    def _name_kernels(self, rows: pa.Table) -> Mapping[str | None, str]:
        """Return a short form of each kernel's name, no two of them alike; empty for rows that are no kernels."""
        names = [*dict.fromkeys(rows["name"].to_pylist())] if self.state.group == "kernels" else []
        return dict(zip(names, name_kernels([name or "(no name)" for name in names], KERNEL_LETTERS), strict=True))

    def _build_row(self, values: Mapping[str, Any], name: str | None, is_open: bool) -> Row:
        cells = self._build_cells(values)
        if self.state.group in _MEMBER_GROUPS:
            target = "" if is_open else shorten_key(name or "")
            return Row(cells, 0, self.state.query(type=target, operator=""), is_open, "")
        if self.state.group in _OPERATOR_GROUPS:
            return self._build_operator(values, cells, 0)
        return Row(self._link_operator(cells, values), 0, None, False, (name or "")[:200])

    def _link_operator(self, cells: tuple[Cell, ...], values: Mapping[str, Any]) -> tuple[Cell, ...]:
        owner = values.get("operator")
        if not owner:
            return cells
        at = [column.name for column in self.columns].index("operator")
        start = PageState(group="operators", steps=self.state.steps)
        linked = replace(cells[at], query=start.query(search=owner[:200], operator=shorten_key(owner)))
        return (*cells[:at], linked, *cells[at + 1 :])

    def _build_operator(self, values: Mapping[str, Any], cells: tuple[Cell, ...], level: int) -> Row:
        name = values["name"] or ""
        key = shorten_key(name)
        is_open = bool(name) and self.state.operator in (name, key)
        detail = read_operator_detail(self.rank, name, self.group.measure, self.state.steps) if is_open else None
        toggle = self.state.query(operator="" if is_open else key)
        return Row(cells, level, toggle, is_open, name[:200], detail)

    def _build_members(self, name: str) -> list[Row]:
        members = tabulate_members(self.rank, GROUPS[self.state.group].name, name, self.group, self.state.steps)
        shown = members.slice(0, CHILD_LIMIT).to_pylist()
        key = GROUPS[self.state.group].name
        rows = [self._build_operator(row, self._build_cells({**row, key: row["name"]}), 1) for row in shown]
        left_out = members.num_rows - len(shown)
        if left_out > 0:
            note = f"{format_count(left_out)} smaller operators are not shown here; the Operators tab has all."
            rows.append(Row((), 1, None, False, "", note=note))
        return rows

    def _build_cells(self, values: Mapping[str, Any]) -> tuple[Cell, ...]:
        return tuple(
            build_cell(column, values[column.name], self.top_share_frac, values.get(_SHORT))
            if column.name in values
            else Cell(column.kind, "")
            for column in self.columns
        )


def find_top_share(rows: pa.Table) -> float:
    """Return the greatest share in a table, which fills a whole bar; 1 if no share is above 0."""
    return pc.max(rows["share_frac"]).as_py() or 1.0
