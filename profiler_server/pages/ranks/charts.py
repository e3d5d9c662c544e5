"""The charts of the ranks: what the mean step of each is made of, its device, and its steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.format.phases import PHASE_LABELS
from collector.format.run import Run
from profiler_server.analysis.ranks.ranks import RankSummary, average_steps, find_noun
from profiler_server.analysis.ranks.work import RankGrid, grid_flops, grid_memory
from profiler_server.analysis.results import DeviceTimes
from profiler_server.figures import Axes, Chart, Figure, Heat, Stack, build_heat, build_stack
from profiler_server.format import format_bytes, format_duration, format_number_of, format_rate

DEVICE_PARTS: Mapping[str, tuple[str, str]] = {
    "computation_ns": ("Computation", "compute"),
    "exposed_communication_ns": ("Exposed communication", "communication"),
    "exposed_copy_ns": ("Exposed copy", "copy"),
    "idle_ns": ("Idle", "idle"),
}
COLUMNS = 160


@dataclass(frozen=True)
class StepMap:
    """A picture of every rank's steps; `data` is what its cells say when one points at them, -1 for nothing."""

    id: str
    title: str
    heat: Heat
    caption: str
    data: dict[str, Any]


def build_charts(ranks: Sequence[RankSummary], devices: Mapping[int, DeviceTimes]) -> tuple[Chart, ...]:
    """Build the charts of the ranks that have steps; the device's only where there is device work."""
    known = [rank for rank in ranks if rank.steps]
    charts = [_draw_phases(known)]
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


def build_steps(ranks: Sequence[RankSummary]) -> StepMap:
    """Build the map of every rank's steps. `ranks` with steps only."""
    known = [rank for rank in ranks if rank.steps]
    first, values = average_steps(known, COLUMNS)
    size = int(first[1] - first[0]) if len(first) > 1 else 1
    noun = find_noun(ranks)
    each = f"the mean of {format_number_of(size, noun)}" if size > 1 else f"one {noun}"
    heat = build_heat(first, [str(rank.rank) for rank in known], values)
    ends = f"pale is {format_duration(heat.low_ns)}, red {format_duration(heat.high_ns)}"
    caption = (
        f"Time outside of collectives; a cell is {each}; {ends}. A red row is a slow rank, a red column a {noun} that "
        "was slow for all."
    )
    rounded = np.where(np.isfinite(values), np.round(values), -1.0).astype(np.int64)
    cells = {"first": first.tolist(), "size": size, "ranks": [rank.rank for rank in known], "values": rounded.tolist()}
    data = {**cells, "noun": noun}
    return StepMap("steps", f"Every rank, {noun} by {noun}", heat, caption, data)


def build_work_maps(run: Run, ranks: Sequence[RankSummary]) -> tuple[StepMap, ...]:
    """Build the maps of what the ranks held and computed, those that were recorded."""
    maps = []
    memory = grid_memory(run, ranks, COLUMNS)
    if memory is not None:
        what = "Most resident memory of each training process; a sample is taken every half second"
        maps.append(_draw_work("memory", ("Memory of every rank", what), memory, format_bytes))
    flops = grid_flops(run, ranks, COLUMNS)
    if flops is not None:
        what = "Floating-point operations of the steps in detailed windows, by formula from the shapes"
        maps.append(_draw_work("flops", ("FLOPs of every rank", what), flops, _write_flops))
    return tuple(maps)


def _write_flops(value: float) -> str:
    return format_rate(value, "FLOP")


def _draw_work(name: str, words: tuple[str, str], grid: RankGrid, write: Callable[[float], str]) -> StepMap:
    heat = build_heat(grid.first, [str(rank) for rank in grid.ranks], grid.values)
    each = f"the most of {grid.size} steps" if grid.size > 1 else "one step"
    most = float(np.nanmax(grid.values))
    ends = f"from {write(heat.low_ns)} (pale) to {write(most)}" if most > heat.low_ns else f"{write(most)} everywhere"
    full = "" if most >= heat.high_ns else f"; full red would be {write(heat.high_ns)}"
    caption = f"{words[1]}. A cell is {each}: {ends}{full}."
    data = {
        "first": grid.first.tolist(),
        "size": grid.size,
        "ranks": list(grid.ranks),
        "noun": "step",
        "values": np.where(np.isfinite(grid.values), grid.values, -1.0).tolist(),
        "texts": [
            [write(value) if value >= 0 else "" for value in row] for row in np.nan_to_num(grid.values, nan=-1.0)
        ],
    }
    return StepMap(name, words[0], heat, caption, data)


def _draw_bars(stack: Stack) -> Figure:
    """Draw a column per rank, apart from each other where there is room."""
    x = stack.x
    axes = Axes(x_title="rank", x_range=(float(x[0]) - 0.5, float(x[-1]) + 0.5))
    figure = build_stack(stack, axes)
    for trace in figure["data"]:
        trace["width"] = 0.6 if len(x) <= 32 else 0.9
    return figure
