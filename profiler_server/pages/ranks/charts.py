"""The charts of the ranks: what the mean step of each is made of, its device, and its steps one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collector.format.phases import PHASE_LABELS
from profiler_server.analysis.ranks.ranks import RankSummary, find_noun
from profiler_server.facts.machine import DeviceTimes
from profiler_server.figures import Axes, Chart, Figure, Stack, build_stack
from profiler_server.format import format_duration

DEVICE_PARTS: Mapping[str, tuple[str, str]] = {
    "computation_ns": ("Computation", "compute"),
    "exposed_communication_ns": ("Exposed communication", "communication"),
    "exposed_copy_ns": ("Exposed copy", "copy"),
    "idle_ns": ("Idle", "idle"),
}


def build_charts(ranks: Sequence[RankSummary], devices: Mapping[int, DeviceTimes]) -> tuple[Chart, ...]:
    """Build the charts of the ranks that have steps; the device's only where there is device work."""
    known = [rank for rank in ranks if rank.steps]
    if not known:
        return ()
    charts = [_draw_phases(known)]
    devices = {rank.rank: devices[rank.rank] for rank in known if rank.rank in devices}
    if devices:
        charts.append(_draw_device(devices))
    return tuple(charts)


def _draw_phases(ranks: Sequence[RankSummary]) -> Chart:
    names = [name for name in PHASE_LABELS if any(rank.phases_ns[name] for rank in ranks)]
    parts = {name: np.array([rank.phases_ns[name] for rank in ranks]) for name in names}
    x = np.array([rank.rank for rank in ranks])
    return Chart(
        id="rank-phases",
        title=f"What the mean {find_noun(ranks)} of each rank is made of",
        caption="Communication is the time in which a rank was held in a collective, waiting for slower ranks included.",
        figure=_draw_bars(Stack(x, parts, labels=PHASE_LABELS)),
        columns=("Rank", *(PHASE_LABELS[name] for name in names)),
        rows=tuple((str(r.rank), *(format_duration(r.phases_ns[name]) for name in names)) for r in ranks),
        size="medium",
    )


def _draw_device(devices: Mapping[int, DeviceTimes]) -> Chart:
    x = np.array(list(devices))
    parts = {name: np.array([float(getattr(times, name)) for times in devices.values()]) for name in DEVICE_PARTS}
    colors = {name: color for name, (_, color) in DEVICE_PARTS.items()}
    labels = {name: label for name, (label, _) in DEVICE_PARTS.items()}
    rows = zip(*(values.tolist() for values in parts.values()), strict=True)
    return Chart(
        id="rank-device",
        title="What the device of each rank did",
        caption="Over the detailed windows: computation, communication and copies that no computation hides, and idle time.",
        figure=_draw_bars(Stack(x, parts, colors, labels)),
        columns=("Rank", *labels.values()),
        rows=tuple(
            (str(rank), *(format_duration(cell) for cell in row)) for rank, row in zip(devices, rows, strict=True)
        ),
        size="medium",
    )


def _draw_bars(stack: Stack) -> Figure:
    """Draw a column per rank, apart from each other where there is room."""
    x = stack.x
    axes = Axes(x_title="rank", x_range=(float(x[0]) - 0.5, float(x[-1]) + 0.5))
    figure = build_stack(stack, axes)
    for trace in figure["data"]:
        trace["width"] = 0.6 if len(x) <= 32 else 0.9
    return figure
