"""The columns of the Operators page, per group and per side that is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from profiler_server.analysis.operators.kernels import shorten_kernel
from profiler_server.analysis.operators.operator_groups import GROUPS, Measure
from profiler_server.format import ABSENT, format_count, format_duration, format_rate, format_share, shorten_middle

Kind = Literal[
    "name", "text", "count", "order", "duration", "share", "fraction", "flag", "flop_rate", "byte_rate", "ratio"
]


@dataclass(frozen=True)
class Column:
    """One column: `name` in the group's table, `label` on the page, `hint` what it means.

    The names of kernels are shown without what most of them have in common.
    """

    name: str
    label: str
    kind: Kind
    hint: str = ""
    is_kernel: bool = False

    @property
    def falls_first(self) -> bool:
        """Say whether the first click shows the greatest value first."""
        return self.kind not in ("name", "text", "order")


@dataclass(frozen=True)
class Cell:
    """One value as shown. `whole` is the text before it was shortened, `bar` the percent of a bar, None for no bar.

    `query` is the page's query that shows what the value names, None for no link.
    """

    kind: Kind
    text: str
    whole: str = ""
    bar: float | None = None
    query: Mapping[str, str] | None = None


_CALLS = Column("count", "Calls", "count", "How often it was called in the steps covered")
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
    Column("name", "Kernel", "name", is_kernel=True),
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
    """Return the columns of a group in order; the first name is what a row is called."""
    times = _DEVICE if measure == "device" else _HOST
    if group == "types":
        return (Column("type", "Type", "name"), Column("operators", "Operators", "count"), _CALLS, *times)
    if group == "kernels":
        return _KERNELS
    if group == "roofline":
        return _ROOFLINE
    if group == "host":
        order = Column("order", "Order", "order", "Place among the first calls of the first step covered")
        return (order, Column("name", "Operator", "name"), _TYPE, _CALLS, *_HOST)
    if group == "modules":
        return (Column("module", "Module", "name"), _CALLS, *times)
    return (Column("name", "Operator", "name"), _TYPE, _CALLS, *times)


SORTABLE: Mapping[str, tuple[str, ...]] = {
    group: tuple({column.name: None for measure in ("host", "device") for column in list_columns(group, measure)})
    for group in GROUPS
}
"""Columns that a group can be sorted by, whichever side is measured."""


def build_cell(column: Column, value: Any, bar_whole: float = 1.0) -> Cell:
    """Format one value. `bar_whole` is the share that fills its bar."""
    if value is None:
        return Cell(column.kind, ABSENT if column.kind != "name" else "(no name)")
    if column.kind == "duration":
        return Cell(column.kind, format_duration(value))
    if column.kind == "share":
        return Cell(column.kind, format_share(value), bar=round(100.0 * value / (bar_whole or 1.0), 2))
    if column.kind == "fraction":
        return Cell(column.kind, format_share(value))
    if column.kind == "count":
        return Cell(column.kind, format_count(value))
    if column.kind in ("flop_rate", "byte_rate"):
        return Cell(column.kind, format_rate(value or None, "FLOP/s" if column.kind == "flop_rate" else "B/s"))
    if column.kind == "ratio":
        return Cell(column.kind, f"{value:,.3g}" if value < 1000 else format_count(round(value)))
    if column.kind == "flag":
        return Cell(column.kind, "yes" if value else "no")
    return _build_text(column, str(value))


def _build_text(column: Column, text: str) -> Cell:
    if column.is_kernel:
        shown = shorten_middle(shorten_kernel(text) or "(no name)", 72)
    else:
        shown = shorten_middle(text or "(no name)", 56 if column.kind == "name" else 26)
    return Cell(column.kind, shown, whole=text[:2000] if shown != text else "")
