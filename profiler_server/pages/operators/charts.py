"""The pie, the bars and the roofline of the Operators page, and the tree of modules."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from profiler_server.analysis.operators.kernels import name_kernels
from profiler_server.analysis.operators.operator_groups import (
    GROUPS,
    NO_MODULE,
    SEPARATOR,
    GroupTable,
    ModuleNode,
    build_module_tree,
)
from profiler_server.analysis.operators.roofline import Part, Roof, find_roof
from profiler_server.figures.charts import Axes, Chart, Slice, build_bars, build_pie
from profiler_server.figures.roofline import RoofLine, RoofPoint, build_roofline
from profiler_server.format import ABSENT, format_count, format_duration, format_rate, format_share, shorten_middle
from profiler_server.page import Notice
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
    if state.group == "modules":
        group = _cut_modules(group)
    parts = _largest(group, GROUPS[state.group].name, time_column(group, state.group))
    whole = sum(part.time_ns for part in parts)
    if not whole:
        return None
    labels = [part.label for part in parts]
    names = name_kernels(labels, 30) if state.group == "kernels" else [shorten_middle(label, 40) for label in labels]
    slices = [_build_slice(part, name, state) for part, name in zip(parts, names, strict=True)]
    side = "on the device" if group.measure == "device" else "on the host"
    what = "Time" if state.group == "kernels" else "Self time"
    figure = (
        build_pie(slices, format_duration(whole))
        if state.chart == "pie"
        else build_bars(slices, Axes(x_title="", y_title=what.lower()))
    )
    noun, known = nouns.removesuffix("s"), pc.count_distinct(group.rows[GROUPS[state.group].name]).as_py()
    return Chart(
        id="operators",
        title=f"{what} by {noun}",
        caption=f"{what} {side} of {_describe_covered(int(known), nouns)}. The parts sum to 100 %.",
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


def _build_slice(part: _Part, name: str, state: PageState) -> Slice:
    # The pie shows the shares on its slices already, and the axis of the bar chart shows times.
    text = format_duration(part.time_ns) if state.chart == "pie" else format_share(part.share_frac)
    return Slice(name, part.time_ns, text, "" if part.label != "Other" else "idle")


def _describe_covered(known: int, nouns: str) -> str:
    if known == 1:
        return f"the only {nouns.removesuffix('s')}"
    if known <= TOP:
        return f"all {known} {nouns}"
    return f"the {TOP} largest of {format_count(known)} {nouns}, the rest as Other"


def _cut_modules(group: GroupTable) -> GroupTable:
    """Return the group with module paths cut to the deepest level that has at most `TOP` modules, so few are in Other.

    Modules of one class are merged (`Linear_7` becomes `Linear_*`) if a deeper level fits the chart in this way.
    """
    paths = group.rows["module"].to_pylist()
    depth = 1
    while depth < _DEEPEST and len({_cut(path, depth + 1) for path in paths}) <= TOP:
        depth += 1
    deeper = [_cut(path, depth + 1) for path in paths]
    cut = [_INSTANCE.sub("_*", path) if path.count(SEPARATOR) >= depth else path for path in deeper]
    if not len({*cut}) <= TOP:
        cut = [_cut(path, depth) for path in paths]
    at = group.rows.column_names.index("module")
    return replace(group, rows=group.rows.set_column(at, "module", pa.array(cut, pa.string())))


def _cut(path: str, depth: int) -> str:
    return path if path == NO_MODULE else SEPARATOR.join(path.split(SEPARATOR)[:depth])


def time_column(group: GroupTable, name: str) -> str:
    """Return the time column of the group `name` that sums to the whole, because no time counts twice in it."""
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


POINTS = 60
SHAPES_REMEDY = "torch.profiler.profile(record_shapes=True)"
_COLORS = {"compute": "compute", "memory": "copy"}


def build_roofline_chart(rank: RankRun, group: GroupTable) -> Chart | None:
    rows = group.rows.filter(pc.greater(group.rows["flops"], 0.0)).sort_by([("time_ns", "descending")])
    shown = rows.slice(0, POINTS).to_pylist()
    if not shown:
        return None
    roof = find_roof(rank) if group.measure == "device" else None
    part = roof.part if roof else None
    lines = _list_roofs(rows, part) if part else []
    points = [_build_point(row) for row in shown if row["intensity"]]
    left_out = f" The {POINTS} longest of {len(rows)} are drawn." if len(rows) > POINTS else ""
    whose = f" on {roof.device}" if roof and roof.device else " on the host" if group.measure == "host" else ""
    return Chart(
        id="operators",
        title="Roofline",
        caption=f"What operators achieve{whose} over their operations per byte; the area of a mark is its time.{left_out}",
        figure=build_roofline(points, lines),
        columns=("Operator", "Precision", "Time", "Achieved", "FLOP/byte", "Bound", "Efficiency"),
        rows=tuple(_describe_row(row) for row in shown),
        size="tall",
    )


def explain_roof(rank: RankRun, group: GroupTable) -> str:
    covered = format_share(pc.sum(group.rows["share_frac"]).as_py() or 0.0)
    side = "device" if group.measure == "device" else "host"
    counted = (
        f"Operations and least bytes come from the recorded shapes; they are known for {covered} of the {side} self time. "
        "A multiplication and an addition are two operations; caches can lift an efficiency past 100 %."
    )
    return f"{_explain_part(find_roof(rank) if group.measure == 'device' else None, group)} {counted}"


def explain_nothing(rank: RankRun) -> Notice:
    shapes = rank.table("operators", ("input_shapes",))["input_shapes"]
    if shapes.null_count == len(shapes):
        reason = "Operations and bytes follow from the shapes of inputs. This trace was taken without shapes."
        return Notice("off", "No shapes were recorded", reason, SHAPES_REMEDY)
    reason = "No operator with shapes has a formula here. Products, convolutions and attention, for example, have one."
    return Notice("empty", "Nothing to compute from", reason)


def _explain_part(roof: Roof | None, group: GroupTable) -> str:
    if group.measure == "host":
        return (
            "No roof: the work ran on the CPU. Its peak depends on clock, vector units and threads, which a trace does not "
            "hold. The achieved rates are shown."
        )
    if roof is None or not roof.device:
        return "No roof: the trace does not name its device. The achieved rates are shown."
    if roof.part is None:
        return f"No roof: “{shorten_middle(roof.device, 60)}” is not in the table of parts. Achieved rates are shown."
    part = roof.part
    peaks = ", ".join(f"{name.upper()} {format_rate(peak, 'FLOP/s')}" for name, peak in _list_peaks(part))
    return (
        f"Roofs of {part.name}: {format_rate(part.bytes_per_s, 'B/s')}; dense peaks {peaks} ({part.source}). "
        "A peak holds at the maker's clock, so no kernel reaches it for long."
    )


def _list_peaks(part: Part) -> list[tuple[str, float]]:
    found = [(name, part.peak_flops_per_s(name)) for name in ("fp32", "tf32", "fp16", "bf16")]
    return [(name, peak) for name, peak in found if peak is not None]


def _list_roofs(rows: pa.Table, part: Part) -> list[RoofLine]:
    """Return a roof for each precision in use. Precisions with the same peak rate share one line."""
    used = set(rows["precision"].to_pylist())
    heights: dict[float, list[str]] = {}
    for name, peak in _list_peaks(part):
        if name in used:
            heights.setdefault(peak, []).append(name.upper())
    return [
        RoofLine(f"{part.name} {' and '.join(names)}: {format_rate(peak, 'FLOP/s')}", peak, part.bytes_per_s)
        for peak, names in heights.items()
    ]


def _build_point(row: dict[str, Any]) -> RoofPoint:
    achieved, time = format_rate(row["flops_per_s"], "FLOP/s"), format_duration(row["time_ns"])
    efficiency = f" · {format_share(row['efficiency_frac'])} of the roof" if row["efficiency_frac"] is not None else ""
    label = f"{shorten_middle(row['name'] or '', 60)} ({row['precision']})"
    text = f"{achieved} · {row['intensity']:.3g} FLOP/byte · {time}{efficiency}"
    color = _COLORS.get(row["bound"] or "", "host")
    return RoofPoint(label, row["intensity"], row["flops_per_s"], row["share_frac"], text, color)


def _describe_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        shorten_middle(row["name"] or "(no name)", 120),
        row["precision"],
        format_duration(row["time_ns"]),
        format_rate(row["flops_per_s"], "FLOP/s"),
        f"{row['intensity']:.3g}" if row["intensity"] is not None else ABSENT,
        row["bound"] or ABSENT,
        format_share(row["efficiency_frac"]),
    )


LINES = 150
DEEPEST = 12
LEAST_SHARE_FRAC = 0.002


@dataclass(frozen=True)
class ModuleTree:
    """The modules as lines of a tree. `left_out` is a sentence on modules that are not shown, "" if all are shown."""

    lines: tuple[ModuleNode, ...]
    on_device: bool
    left_out: str


def build_tree(rank: RankRun, state: PageState) -> ModuleTree | None:
    if state.group != "modules":
        return None
    nodes = build_module_tree(rank, state.steps)
    if all(node.depth == 0 for node in nodes):
        return None
    shown = [node for node in nodes if node.share_frac >= LEAST_SHARE_FRAC and node.depth <= DEEPEST][:LINES]
    on_device = any(node.device_ns for node in nodes)
    hidden = len(nodes) - len(shown)
    left_out = (
        f"{hidden:,} modules with under {format_share(LEAST_SHARE_FRAC)} or deeper down are not shown."
        if hidden
        else ""
    )
    return ModuleTree(tuple(shown), on_device, left_out)
