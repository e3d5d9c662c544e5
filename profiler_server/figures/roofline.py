"""A roofline: the speed of operators over their arithmetic intensity, below the roofs of their device; log-log."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collector.format.phases import PALETTE
from profiler_server.figures.charts import LEGEND_ABOVE, NEUTRALS, Figure, complete_figure, plain_text

DASHES = ("solid", "dash", "dot", "dashdot")
LEAST_SIZE, MOST_SIZE = 7.0, 34.0


@dataclass(frozen=True)
class RoofPoint:
    """One operator. `share_frac` sets the area of its mark; `text` is shown on hover."""

    label: str
    intensity: float
    flops_per_s: float
    share_frac: float
    text: str
    color: str = "compute"


@dataclass(frozen=True)
class RoofLine:
    """One roof: a slope with the memory bandwidth, up to a horizontal line at the peak of arithmetic."""

    label: str
    flops_per_s: float
    bytes_per_s: float


def build_roofline(points: Sequence[RoofPoint], roofs: Sequence[RoofLine]) -> Figure:
    """Return the chart. Its axes include all points, and the corner of every roof."""
    ridges = [roof.flops_per_s / roof.bytes_per_s for roof in roofs]
    low, high = _span([point.intensity for point in points] + ridges)
    data = [_draw_roof(roof, low, high, dash) for roof, dash in zip(roofs, itertools.cycle(DASHES), strict=False)]
    data.append(_draw_points(points))
    heights = [point.flops_per_s for point in points] + [roof.flops_per_s for roof in roofs]
    bottom, top = _span(heights)
    layout: Figure = {
        "margin": {"l": 64, "r": 12, "t": 8, "b": 44},
        "showlegend": bool(roofs),
        "legend": LEGEND_ABOVE,
        "hovermode": "closest",
        "xaxis": _log_axis("arithmetic intensity (FLOP per byte)", low, high),
        "yaxis": {**_log_axis("achieved (FLOP/s)", bottom, top), "fixedrange": True},
    }
    return complete_figure(data, layout)


def _draw_roof(roof: RoofLine, low: float, high: float, dash: str) -> dict[str, Any]:
    ridge = roof.flops_per_s / roof.bytes_per_s
    x = sorted({low, min(max(ridge, low), high), high})
    y = [min(roof.flops_per_s, value * roof.bytes_per_s) for value in x]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain_text(roof.label),
        "x": [_round(value) for value in x],
        "y": [_round(value) for value in y],
        "line": {"color": NEUTRALS["ink"][0], "width": 1.5, "dash": dash},
        "hovertemplate": f"{plain_text(roof.label)}<extra></extra>",
    }


def _draw_points(points: Sequence[RoofPoint]) -> dict[str, Any]:
    whole = max((point.share_frac for point in points), default=0.0) or 1.0
    sizes = [LEAST_SIZE + (MOST_SIZE - LEAST_SIZE) * math.sqrt(point.share_frac / whole) for point in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "operators",
        "showlegend": False,
        "x": [_round(point.intensity) for point in points],
        "y": [_round(point.flops_per_s) for point in points],
        "customdata": [[plain_text(point.label), plain_text(point.text)] for point in points],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        "marker": {
            "size": [round(size, 1) for size in sizes],
            "color": [PALETTE[point.color][0] for point in points],
            "opacity": 0.75,
            "line": {"width": 1, "color": NEUTRALS["ground"][0]},
        },
    }


def _log_axis(title: str, low: float, high: float) -> dict[str, Any]:
    return {
        "type": "log",
        "title": {"text": title, "standoff": 4},
        "range": [round(math.log10(low), 3), round(math.log10(high), 3)],
        "tickformat": "~s",
        "dtick": 1,
        "zeroline": False,
    }


def _span(values: Sequence[float]) -> tuple[float, float]:
    positive = [value for value in values if value > 0]
    return (min(positive) / 2.5, max(positive) * 2.5) if positive else (0.1, 10.0)


def _round(value: float) -> float:
    return float(f"{value:.5g}")
