"""The pie and the bars of the Operators page: the twenty largest rows of the group, the rest as Other."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from profiler_server.analysis.operators.kernels import shorten_kernel
from profiler_server.analysis.operators.operator_groups import GROUPS, NO_MODULE, SEPARATOR, GroupTable
from profiler_server.figures import Axes, Chart, Slice, build_bars, build_pie
from profiler_server.format import format_count, format_duration, format_share, shorten_middle
from profiler_server.pages.operators.state import PageState

TOP = 20
_DEEPEST = 12
_INSTANCE = re.compile(r"_\d+$")


@dataclass(frozen=True)
class _Part:
    label: str
    count: int
    time_ns: int
    share_frac: float


def build_chart(group: GroupTable, state: PageState, nouns: str) -> Chart | None:
    """Build the chart of a group; None where no time was spent. `nouns` is what its rows are called."""
    if state.group == "modules":
        group = _cut_modules(group)
    parts = _largest(group, GROUPS[state.group].name, time_column(group, state.group))
    whole = sum(part.time_ns for part in parts)
    if not whole:
        return None
    slices = [_build_slice(part, state) for part in parts]
    side = "on the device" if group.measure == "device" else "on the host"
    what = "Time" if state.group == "kernels" else "Self time"
    figure = (
        build_pie(slices, format_duration(whole))
        if state.chart == "pie"
        else build_bars(slices, Axes(x_title="", y_title=what.lower()))
    )
    noun = nouns.removesuffix("s")
    return Chart(
        id="operators",
        title=f"{what} by {noun}",
        caption=f"{what} {side} of {_tell_which(_count_names(group, state.group), nouns)}. The parts sum to 100 %.",
        figure=figure,
        columns=(noun.capitalize(), "Calls", what, "Share"),
        rows=tuple(
            (
                shorten_middle(p.label, 120),
                format_count(p.count),
                format_duration(p.time_ns),
                format_share(p.share_frac),
            )
            for p in parts
        ),
        size="tall" if state.chart == "bar" or len(parts) > 10 else "medium",
    )


def _build_slice(part: _Part, state: PageState) -> Slice:
    name = shorten_kernel(part.label) if state.group == "kernels" else part.label
    return Slice(
        shorten_middle(name, 40),
        part.time_ns,
        _describe(part, state.chart),
        "" if part.label != "Other" else "idle",
    )


def _tell_which(known: int, nouns: str) -> str:
    """Return of which rows the chart is, where so many have a name."""
    if known == 1:
        return f"the only {nouns.removesuffix('s')}"
    if known <= TOP:
        return f"all {known} {nouns}"
    return f"the {TOP} largest of {format_count(known)} {nouns}, the rest as Other"


def _cut_modules(group: GroupTable) -> GroupTable:
    """Sum modules up to the deepest level that has no more of them than the chart shows, so that few are Other.

    On the level below, those of one class are one part if all then fit.
    """
    paths = group.rows["module"].to_pylist()
    depth = 1
    while depth < _DEEPEST and len({_cut(path, depth + 1) for path in paths}) <= TOP:
        depth += 1
    cut = [_join_class(_cut(path, depth + 1), depth) for path in paths]
    if not len({*cut}) <= TOP:
        cut = [_cut(path, depth) for path in paths]
    at = group.rows.column_names.index("module")
    return replace(group, rows=group.rows.set_column(at, "module", pa.array(cut, pa.string())))


def _cut(path: str, depth: int) -> str:
    return path if path == NO_MODULE else SEPARATOR.join(path.split(SEPARATOR)[:depth])


def _join_class(path: str, depth: int) -> str:
    """Take the number of the instance from a module below a depth, such as Linear_7: all of one class are one then."""
    return _INSTANCE.sub("_*", path) if path.count(SEPARATOR) >= depth else path


def time_column(group: GroupTable, name: str) -> str:
    """Return the column whose values sum to the whole without counting anything twice."""
    if name == "kernels":
        return "total_ns"
    return "device_self_ns" if group.measure == "device" else "self_ns"


def _largest(group: GroupTable, key: str, time: str) -> list[_Part]:
    summed = group.rows.group_by(key, use_threads=False).aggregate(
        [("count", "sum"), (time, "sum"), ("share_frac", "sum")]
    )
    summed = summed.rename_columns([key, "count", "time_ns", "share_frac"])
    summed = summed.sort_by([("time_ns", "descending"), (key, "ascending")])
    parts = [
        _Part(row[key] or "(no name)", row["count"], row["time_ns"], row["share_frac"])
        for row in summed.slice(0, TOP).to_pylist()
    ]
    rest = summed.slice(TOP)
    if rest.num_rows:
        parts.append(_Part("Other", _sum(rest, "count"), _sum(rest, "time_ns"), float(_sum(rest, "share_frac"))))
    return [part for part in parts if part.time_ns > 0]


def _sum(table: pa.Table, column: str) -> int:
    return pc.sum(table[column]).as_py() or 0


def _count_names(group: GroupTable, name: str) -> int:
    return int(pc.count_distinct(group.rows[GROUPS[name].name]).as_py())


def _describe(part: _Part, chart: str) -> str:
    """Return what stands at a part: the pie writes shares itself, the bars' axis shows times."""
    return format_duration(part.time_ns) if chart == "pie" else format_share(part.share_frac)
