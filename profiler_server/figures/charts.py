"""Charts as plain dicts of Plotly's schema, with a table for readers who do not see the chart.

`frontend/static/js/figure.js` draws them, and replaces the light colours of PALETTE by the dark ones. Series are given
in ns; the axis has one scaled unit.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from collector.format.phases import PALETTE, PHASE_COLORS
from profiler_server.format import choose_byte_unit, choose_time_unit, format_share, shorten_middle

Numbers = npt.NDArray[Any]
Figure = dict[str, Any]
Size = Literal["short", "medium", "tall"]

NEUTRALS = {"ink": ("#1b1f24", "#e6edf3"), "ground": ("#ffffff", "#0f1216")}
"""The colours of text and of the page's ground, light and dark. The text colour is also for lines without a category,
such as the whole step."""

LEGEND_ABOVE: Mapping[str, str | float] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
PIE_ORDER = ("compute", "backward", "overlap", "host")
"""Colours for slices without a category. Colours of waiting, copying and updating would mislead and are left out."""
PIE_COLORS = {"communication": "communication", "copy": "copy", "optimizer": "optimizer"}
"""Colours of slices whose label is a category, the same as everywhere on the pages."""
OUTSIDE_FRAC = 0.03
"""Share of the pie below which a hatched slice shows no percentage."""
PIE_HATCHES = ("", "/", "x", ".", "-", "|")
DRAWN_POINTS = 1_000
"""Most points of one line. A longer series is decimated, and zooming fetches the rest from the server."""
MARKED_POINTS = 2
"""Number of points up to which a line also shows its points."""
SHADED_LIMIT = 100
BINNED_BARS = 240
"""Most columns of a stacked chart. More steps are shown as means of equally long groups of steps."""


@dataclass(frozen=True)
class Chart:
    """A figure for a page. `caption` is a sentence. `columns` and `rows` hold the data as a formatted table.

    `source` is the name under which the server redraws the chart for a range of steps, empty if the chart already shows
    every value.
    """

    id: str
    title: str
    caption: str
    figure: Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    size: Size = "medium"
    source: str = ""


@dataclass(frozen=True)
class Line:
    """One line. `y` is in ns, or in the `unit` of the axes. `x` is None if the line uses the common x of the chart.

    The `kind` "area" fills down to zero; "band" fills to the previous line. Points and ticks are not joined. Ticks are
    thin enough to stay separate where points would merge into a line.
    """

    name: str
    color: str
    y: Numbers
    kind: Literal["line", "area", "band", "points", "ticks", "steps", "dash"] = "line"
    x: Numbers | None = None
    marked: bool = False


@dataclass(frozen=True)
class Axes:
    """The settings of both axes. `shaded` are ranges of x.

    The `unit` "time" scales ns to one readable unit, and "bytes" scales bytes; any other unit is shown unchanged.
    `y_peak` is the largest value to show, in the unit of the series. Larger values are cut off at the top, and the
    caption must mention this.
    """

    x_title: str = "step"
    y_title: str = "time"
    unit: str = "time"
    x_range: tuple[float, float] | None = None
    y_max: float | None = None
    y_peak: float | None = None
    legend: bool = True
    shaded: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Slice:
    """A slice of a pie or a bar of a bar chart. `color` is a category of PALETTE, empty for the next free colour."""

    label: str
    value: float
    text: str
    color: str = ""


@dataclass(frozen=True)
class Stack:
    """Components that add up to a total: one array each over the same `x`, the lowest component first."""

    x: Numbers
    parts: Mapping[str, Numbers]
    colors: Mapping[str, str] = field(default_factory=lambda: PHASE_COLORS)
    labels: Mapping[str, str] = field(default_factory=dict)


def decimate(x: Numbers, y: Numbers, limit: int = DRAWN_POINTS) -> tuple[Numbers, Numbers]:
    """Return at most `limit` points in order: the least and the greatest value of each of `limit / 2` groups."""
    if len(y) <= limit or limit < 2:
        return x, y
    runs = limit // 2
    edges = np.linspace(0, len(y), runs + 1).astype(np.int64)
    size = int(np.diff(edges).max())
    # Short runs are padded with their own last point, so that one argmin serves all of them.
    at = np.minimum(edges[:-1, None] + np.arange(size), edges[1:, None] - 1)
    values = y[at]
    rows = np.arange(runs)
    kept = np.unique(np.concatenate([at[rows, values.argmin(axis=1)], at[rows, values.argmax(axis=1)]]))
    return x[kept], y[kept]


def average_runs(values: Numbers, limit: int = BINNED_BARS) -> Numbers:
    """Return the means of at most `limit` groups of equally many consecutive values; the last group may be smaller."""
    if len(values) <= limit:
        return values.astype(np.float64)
    starts = np.arange(0, len(values), run_length(len(values), limit))
    sizes = np.diff(np.append(starts, len(values)))
    return np.asarray(np.add.reduceat(values.astype(np.float64), starts) / sizes)


def run_length(count: int, limit: int = BINNED_BARS) -> int:
    """Return the number of values in each mean of `average_runs`."""
    return max(1, -(-count // limit))


def build_lines(x: Numbers, lines: Sequence[Line], axes: Axes | None = None, points: int = DRAWN_POINTS) -> Figure:
    """Return a figure of lines over a common x, each line thinned to `points` points. Missing values (NaN) are gaps."""
    axes = axes or Axes()
    peak = max((float(np.nanmax(line.y)) for line in lines if len(line.y) and np.isfinite(line.y).any()), default=0.0)
    scale, unit = _scale(axes, axes.y_peak or peak)
    if len(x) <= MARKED_POINTS:
        lines = [replace(line, marked=True) for line in lines]
    data = [_draw_line(line, x, scale, unit, points) for line in lines]
    return complete_figure(data, _axis_layout(axes, unit, scale))


def build_stack(stack: Stack, axes: Axes | None = None) -> Figure:
    """Return stacked columns: one per step, or one per group of steps if there are more than BINNED_BARS steps."""
    axes = axes or Axes()
    total = np.sum([*stack.parts.values()], axis=0) if stack.parts else np.zeros(1)
    # A column of several steps is their mean, and lower than the longest of these steps.
    peak = float(np.max(average_runs(total))) if len(stack.x) else 0.0
    if axes.y_peak is not None:
        axes = replace(axes, y_peak=min(axes.y_peak, peak))
    scale, unit = _scale(axes, axes.y_peak or peak)
    x = average_runs(stack.x)
    width = float(run_length(len(stack.x)))
    data = []
    for name, values in stack.parts.items():
        marker: dict[str, Any] = {"color": color_of(stack.colors[name]), "line": {"width": 0}}
        if stack.colors[name] == "idle":
            marker["pattern"] = {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace"}
        label = plain_text(stack.labels.get(name, name))
        hover = f"%{{x:,.0f}}: %{{y:.4~g}} {unit}<extra>{label}</extra>"
        data.append(
            {
                "type": "bar",
                "name": label,
                "x": _list_for_json(x, digits=9),
                "y": _list_for_json(average_runs(values) / scale),
                "width": width,
                "marker": marker,
                "hovertemplate": hover,
            }
        )
    return complete_figure(data, {**_axis_layout(axes, unit, scale), "barmode": "stack", "bargap": 0})


def build_pie(slices: Sequence[Slice], center: str = "") -> Figure:
    """Return a ring of slices in the given order, with `center` written in its middle.

    If there are more slices than colours, slices with a repeated colour are hatched.
    """
    given = [slice_.color or PIE_COLORS.get(slice_.label, "") for slice_ in slices]
    places = np.cumsum([not color for color in given]) - 1  # counted among slices without a given colour
    colors = [color or PIE_ORDER[at % len(PIE_ORDER)] for color, at in zip(given, places.tolist(), strict=True)]
    rounds = [0 if color else at // len(PIE_ORDER) for color, at in zip(given, places.tolist(), strict=True)]
    whole = sum(s.value for s in slices) or 1.0
    shares = [format_share(s.value / whole) for s in slices]  # the same texts as in the table beside the chart
    pattern = {"shape": [PIE_HATCHES[r % len(PIE_HATCHES)] for r in rounds], "size": 6, "solidity": 0.6}
    pie = {
        "type": "pie",
        "labels": _number_duplicates([plain_text(shorten_middle(s.label, 30)) for s in slices]),
        "customdata": [plain_text(s.label) for s in slices],
        "values": _list_for_json(np.array([s.value for s in slices], dtype=np.float64)),
        "text": [plain_text(s.text) for s in slices],
        "marker": {
            "colors": [color_of(c) for c in colors],
            "line": {"width": 1, "color": color_of("ground")},
            "pattern": {**pattern, "fillmode": "replace"},
        },
        "hole": 0.58,
        "sort": False,
        "direction": "clockwise",
        # Letters on a hatch cannot be read, and letters beside a thin slice would overlap those of the next slice.
        "texttemplate": [
            "" if r and s.value < OUTSIDE_FRAC * whole else share
            for r, s, share in zip(rounds, slices, shares, strict=True)
        ],
        "textposition": ["outside" if r else "inside" for r in rounds],
        "insidetextorientation": "horizontal",
        "hovertemplate": [f"%{{customdata}}<br>%{{text}} · {share}<extra></extra>" for share in shares],
    }
    edge = 24 if any(rounds) else 4  # a label outside of the ring may lie above or below it
    layout: Figure = {"margin": {"l": 4, "r": 4, "t": edge, "b": edge}, "showlegend": True}
    layout["uniformtext"] = {"minsize": 11, "mode": "hide"}
    layout["legend"] = {"orientation": "v", "x": 1.02, "y": 0.5, "yanchor": "middle"}
    if center:
        layout["annotations"] = [{"text": plain_text(center), "showarrow": False, "x": 0.5, "y": 0.5}]
    return complete_figure([pie], layout)


def _number_duplicates(labels: Sequence[str]) -> list[str]:
    """Return the labels, with a number after each repeated one, because Plotly adds up slices with equal labels."""
    seen: dict[str, int] = {}
    told = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        told.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return told


def build_bars(slices: Sequence[Slice], axes: Axes | None = None) -> Figure:
    axes = axes or Axes(x_title="")
    scale, unit = _scale(axes, max((s.value for s in slices), default=0.0))
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": _list_for_json(np.array([s.value for s in slices], dtype=np.float64) / scale),
        # Labels may repeat once they are shortened, so the position is a number and the label its tick.
        "y": list(range(len(slices))),
        "customdata": [plain_text(s.label) for s in slices],
        "text": [plain_text(s.text) for s in slices],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [color_of(s.color or "compute") for s in slices]},
        "hovertemplate": "%{customdata}<br>%{text}<extra></extra>",
    }
    layout = {"margin": {"l": 8, "r": 64, "t": 8, "b": 32}, "showlegend": False, "bargap": 0.25}
    layout["xaxis"] = {"title": {"text": f"{axes.y_title} ({unit})" if unit else axes.y_title}, "rangemode": "tozero"}
    ticks = {"tickmode": "array", "tickvals": list(range(len(slices)))}
    ticktext = [plain_text(shorten_middle(s.label, 36)) for s in slices]
    layout["yaxis"] = {**ticks, "ticktext": ticktext, "autorange": "reversed", "automargin": True, "ticks": ""}
    return complete_figure([bars], layout)


def build_depths(x: Numbers, depths: Numbers, capacity: float, x_title: str = "step") -> Figure:
    """Return a figure of a queue's depth over the steps, with a dashed line at its capacity, and marks at depth 0."""
    drawn_x, drawn = decimate(x, depths)
    zeros, ends = drawn_x[drawn == 0], x[[0, -1]] if len(x) else np.array([0, 1])
    lines = [
        Line("depth", "data", depths, "steps"),
        Line("capacity", "idle", np.array([capacity, capacity]), "dash", x=ends),
        Line("empty", "worse", np.zeros(len(zeros)), "ticks", x=zeros),
    ]
    span = (float(x[0]) - 0.5, float(x[-1]) + 0.5) if len(x) else None
    axes = Axes(x_title, y_title="depth", unit="batches", x_range=span, y_max=capacity * 1.08 or 1.0)
    return build_lines(x, lines, axes)


def plain_text(text: str) -> str:
    """Return the text, cut to a maximum length and escaped: Plotly would otherwise read it as HTML."""
    return html.escape(shorten_middle(text, 120), quote=False)


def _draw_line(line: Line, x: Numbers, scale: float, unit: str, points: int = DRAWN_POINTS) -> Figure:
    own_x = x if line.x is None else line.x
    drawn_x, drawn = decimate(own_x, line.y, points)
    color = color_of(line.color)
    trace: Figure = {
        "type": "scatter",
        "mode": "markers" if line.kind in ("points", "ticks") else "lines+markers" if line.marked else "lines",
        "name": plain_text(line.name),
        "x": _list_for_json(drawn_x, digits=9),
        "y": _list_for_json(drawn / scale),
        "hovertemplate": f"%{{x:,.0f}}: %{{y:.4~g}} {unit}<extra>{plain_text(line.name)}</extra>",
    }
    if line.kind == "points":
        return {**trace, "marker": {"color": color, "size": 6}}
    if line.kind == "ticks":
        tick = {"symbol": "line-ns-open", "size": 9, "line": {"color": color, "width": 1.5}}
        return {**trace, "marker": {"color": color, **tick}}
    trace["line"] = {"color": color, "width": 1.5}
    if line.kind == "area":
        return {**trace, "fill": "tozeroy", "fillcolor": f"{color}33"}
    if line.kind == "band":
        return {**trace, "line": {**trace["line"], "width": 1}, "fill": "tonexty", "fillcolor": f"{color}33"}
    if line.kind == "steps":
        return {**trace, "line": {**trace["line"], "shape": "hv"}, "fill": "tozeroy", "fillcolor": f"{color}33"}
    if line.kind == "dash":
        return {**trace, "line": {**trace["line"], "dash": "dash"}, "hoverinfo": "skip", "hovertemplate": None}
    return trace


def _axis_layout(axes: Axes, unit: str, scale: float) -> Figure:
    y_title = f"{axes.y_title} ({unit})" if unit else axes.y_title
    layout: Figure = {
        "margin": {"l": 60, "r": 12, "t": 8, "b": 40},
        "showlegend": axes.legend,
        "legend": LEGEND_ABOVE,
        "hovermode": "x unified" if axes.legend else "closest",
        "xaxis": {"title": {"text": axes.x_title, "standoff": 4}, "zeroline": False},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero", "zeroline": False, "fixedrange": True},
    }
    if axes.shaded:
        look = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
        color = f"{color_of('idle')}40"
        layout["shapes"] = [{**look, "x0": x0, "x1": x1, "fillcolor": color} for x0, x1 in axes.shaded[:SHADED_LIMIT]]
    if axes.x_range is not None:
        layout["xaxis"]["range"] = list(axes.x_range)
        if axes.x_range[1] - axes.x_range[0] <= 10:
            layout["xaxis"]["dtick"] = 1
    if axes.y_max is not None:
        layout["yaxis"]["range"] = [0, axes.y_max]
    if axes.y_peak is not None:
        layout["yaxis"]["range"] = [0, 1.06 * axes.y_peak / scale]
    return layout


def complete_figure(data: list[Figure], layout: Figure) -> Figure:
    """Return a figure with its data and layout. The meta of the layout maps light colours to dark colours."""
    return {"data": data, "layout": {**layout, "meta": {"dark": dict([*PALETTE.values(), *NEUTRALS.values()])}}}


def _scale(axes: Axes, peak: float) -> tuple[float, str]:
    if axes.unit == "bytes":
        return choose_byte_unit(peak)
    return choose_time_unit(peak) if axes.unit == "time" else (1.0, axes.unit)


def color_of(category: str) -> str:
    return (NEUTRALS.get(category) or PALETTE[category])[0]


def _list_for_json(values: Numbers, digits: int = 5) -> list[float | int | None]:
    """Return numbers for JSON, rounded to `digits` significant digits; NaN becomes null."""
    if values.dtype.kind in "iu":
        return list(values.tolist())
    return [None if value != value else float(f"{value:.{digits}g}") for value in values.tolist()]
