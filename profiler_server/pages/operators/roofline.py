"""The roofline of the Operators page: the chart, and the sentences that say what stands in for a roof."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from profiler_server.analysis.operators.operator_groups import GroupTable
from profiler_server.analysis.operators.roofline import Part, Roof, find_roof
from profiler_server.figures import Chart
from profiler_server.figures.roofline import RoofLine, RoofPoint, build_roofline
from profiler_server.format import ABSENT, format_duration, format_rate, format_share, shorten_middle
from profiler_server.page import Notice

POINTS = 60
SHAPES_REMEDY = "torch.profiler.profile(record_shapes=True)"
_COLORS = {"compute": "compute", "memory": "copy"}


def build_roofline_chart(rank: RankRun, group: GroupTable) -> Chart | None:
    """Draw the operators that compute anything, the longest first; None where none does."""
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
    """Say which roofs are drawn and where their figures come from, or why there are none."""
    covered = format_share(pc.sum(group.rows["share_frac"]).as_py() or 0.0)
    side = "device" if group.measure == "device" else "host"
    counted = (
        f"Operations and least bytes come from the recorded shapes; they are known for {covered} of the {side} self time. "
        "A multiplication and an addition are two operations; caches can lift an efficiency past 100 %."
    )
    return f"{_explain_part(find_roof(rank) if group.measure == 'device' else None, group)} {counted}"


def explain_nothing(rank: RankRun) -> Notice:
    """Say why no operator has a place in the roofline."""
    shapes = rank.table("operators", ("input_shapes",))["input_shapes"]
    if shapes.null_count == len(shapes):
        reason = "Operations and bytes are computed from the shapes of inputs, and this trace was taken without them."
        return Notice("off", "No shapes were recorded", reason, SHAPES_REMEDY)
    reason = "None of the operators with shapes has a formula; products, convolutions, attention and such have."
    return Notice("empty", "Nothing to compute from", reason)


def _explain_part(roof: Roof | None, group: GroupTable) -> str:
    if group.measure == "host":
        return (
            "No roof: the work ran on the CPU, whose peak depends on clock, vector units and threads that a trace does not "
            "tell. What it achieved is shown."
        )
    if roof is None or not roof.device:
        return "No roof: the trace does not name its device. What it achieved is shown."
    if roof.part is None:
        return f"No roof: “{shorten_middle(roof.device, 60)}” is not in the table of parts. What it achieved is shown."
    part = roof.part
    peaks = ", ".join(f"{name} {format_rate(peak, 'FLOP/s')}" for name, peak in _list_peaks(part))
    return (
        f"Roofs of {part.name}: {format_rate(part.bytes_per_s, 'B/s')}; dense peaks {peaks} ({part.source}). "
        "A peak holds at the maker's clock, so no kernel reaches it for long."
    )


def _list_peaks(part: Part) -> list[tuple[str, float]]:
    found = [(name.upper(), part.peak_flops_per_s(name)) for name in ("fp32", "tf32", "fp16", "bf16")]
    return [(name, peak) for name, peak in found if peak is not None]


def _list_roofs(rows: pa.Table, part: Part) -> list[RoofLine]:
    """List a roof for each precision that occurs; those of one height share a line."""
    used = set(rows["precision"].to_pylist())
    heights: dict[float, list[str]] = {}
    for name in ("fp32", "tf32", "fp16", "bf16"):
        peak = part.peak_flops_per_s(name)
        if name in used and peak is not None:
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
