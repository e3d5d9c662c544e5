"""The pictures of the Ranks page: phases of each rank's mean step, times of each device, a map of ranks and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.format.phases import PHASE_LABELS
from profiler_server.facts.machine import DeviceTimes
from profiler_server.facts.ranks import RankFigures, RankGrid, find_noun
from profiler_server.figures.charts import Axes, Chart, Figure, Stack, build_stack
from profiler_server.figures.heat import Heat, build_heat
from profiler_server.format import format_bytes, format_duration, format_number_of, format_rate, format_share
from profiler_server.widgets import Link

DEVICE_PARTS: Mapping[str, tuple[str, str]] = {
    "computation_ns": ("Computation", "compute"),
    "exposed_communication_ns": ("Exposed communication", "communication"),
    "exposed_copy_ns": ("Exposed copy", "copy"),
    "idle_ns": ("Idle", "idle"),
}


def build_charts(ranks: Sequence[RankFigures], devices: Mapping[int, DeviceTimes]) -> tuple[Chart, ...]:
    known = [rank for rank in ranks if rank.steps]
    if not known:
        return ()
    charts = [_draw_phases(known)]
    devices = {rank.rank: devices[rank.rank] for rank in known if rank.rank in devices}
    if devices:
        charts.append(_draw_device(devices))
    return tuple(charts)


def _draw_phases(ranks: Sequence[RankFigures]) -> Chart:
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
    )


def _draw_bars(stack: Stack) -> Figure:
    x = stack.x
    axes = Axes(x_title="rank", x_range=(float(x[0]) - 0.5, float(x[-1]) + 0.5))
    figure = build_stack(stack, axes)
    for trace in figure["data"]:
        trace["width"] = 0.6 if len(x) <= 32 else 0.9
    return figure


@dataclass(frozen=True)
class StepMap:
    """A map of one figure, with a row for each shown rank. `data` has the values of the cells for hovering, -1 for
    none.

    If the chosen figure was not recorded, `heat` is None, and `caption` says so."""

    title: str
    choices: tuple[Link, ...]
    heat: Heat | None
    caption: str
    data: dict[str, Any]


@dataclass(frozen=True)
class _Figure:
    """A figure that the map can show. A cell of several steps shows their maximum if `is_most`, else their mean."""

    label: str
    what: str
    write: Callable[[float], str] = format_duration
    is_most: bool = False


def _write_per_s(ns_per_sample: float) -> str:
    return f"{1e9 / ns_per_sample:,.4g} samples/s" if ns_per_sample > 0 else "none"


FIGURES: Mapping[str, _Figure] = {
    "own": _Figure("Own work", "Time outside of collectives"),
    "step": _Figure("Step time", "The whole step"),
    "wait": _Figure("Waiting", "How long a rank waits for the one that comes last, by its lateness"),
    **{name: _Figure(label, f"{label} in the step") for name, label in PHASE_LABELS.items()},
    "sample": _Figure("Throughput", "Samples in the time of a step: red is where a sample takes longest", _write_per_s),
    "memory": _Figure(
        "Memory",
        "Most resident memory of the main process of each rank; a sample is taken every half second",
        format_bytes,
        is_most=True,
    ),
    "busy": _Figure(
        "Device busy",
        "How busy the device was when it was sampled, every half second",
        format_share,
        is_most=True,
    ),
    "flops": _Figure(
        "FLOPs",
        "Floating-point operations of the steps in detailed windows, by formula from the shapes",
        lambda value: format_rate(value, "FLOP"),
        is_most=True,
    ),
}
"""The figures of the map, by switch key; `grid_figure` of the analysis has the same keys."""


def choose_figure(query: Mapping[str, str]) -> str:
    """Return the key of the figure that `?map=` asks for; `own` (own work) if that key is missing or unknown."""
    asked = query.get("map", "")
    return asked if asked in FIGURES else "own"


def build_map(grid: RankGrid | None, chosen: str, noun: str, shown: int, ranks: int) -> StepMap:
    figure = FIGURES[chosen]
    choices = tuple(Link(entry.label, {"map": key}, key == chosen) for key, entry in FIGURES.items())
    title = f"{figure.label}, {noun} by {noun}"
    if grid is None:
        return StepMap(title, choices, None, f"{figure.what}: not recorded for these ranks.", {})
    heat = build_heat(grid.first, [str(rank) for rank in grid.ranks], grid.values)
    caption = _describe(figure, grid, heat, noun)
    if shown < ranks:
        caption += f" Shown are {shown:,} of {ranks:,} ranks, those of the table below in its order."
    return StepMap(title, choices, heat, caption, _list_cells(figure, grid, noun))


def _describe(figure: _Figure, grid: RankGrid, heat: Heat, noun: str) -> str:
    several = "the most of" if figure.is_most else "the mean of"
    each = f"{several} {format_number_of(grid.size, noun)}" if grid.size > 1 else f"one {noun}"
    return (
        f"{figure.what}. A cell is {each}: {_describe_scale(figure, heat)}. A red row is a rank that stands out, a red column a {noun} that does "
        "on all ranks, an empty row a rank without figures."
    )


def _describe_scale(figure: _Figure, heat: Heat) -> str:
    low, high, most = (figure.write(value) for value in (heat.low_ns, heat.high_ns, heat.most_ns))
    if heat.beyond:
        held = "1 cell is far beyond that:" if heat.beyond == 1 else f"{heat.beyond:,} cells are far beyond that, up to"
        return f"from {low} (pale) to {high} (red); {held} {most} (violet)"
    if heat.most_ns <= heat.low_ns:
        return f"{most} everywhere"
    if most != high and heat.most_ns > heat.high_ns:
        return f"from {low} (pale) to {high} or more (red); the highest is {most}"
    return f"from {low} (pale) to {most}"


def _list_cells(figure: _Figure, grid: RankGrid, noun: str) -> dict[str, Any]:
    known = np.isfinite(grid.values)
    rounded = np.where(known, np.round(np.nan_to_num(grid.values), 3 if figure.is_most else 0), -1.0)
    cells = {
        "first": grid.first.tolist(),
        "size": grid.size,
        "ranks": list(grid.ranks),
        "noun": noun,
        "values": (rounded if figure.is_most else rounded.astype(np.int64)).tolist(),
    }
    if figure.write is format_duration:
        return cells
    return {
        **cells,
        "texts": [[figure.write(value) if value >= 0 else "" for value in row] for row in rounded.tolist()],
    }
