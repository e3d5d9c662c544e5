"""A waterfall: the changes that lead from one total to another, each with its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.phases import PALETTE
from profiler_server.figures.charts import Figure, complete_figure, plain_text
from profiler_server.format import choose_time_unit

LEAST_CUT_FRAC = 0.4
"""Share of the highest level above which the axis may begin instead of at zero, so that small changes are visible."""
ROOM_FRAC = 0.35
"""Space below the lowest level, as a share of the height of the changes."""

LABEL_FRAC = 0.02
"""Space between a bar and its label, as a share of the picture's height."""


@dataclass(frozen=True)
class Fall:
    """One component of the change, ns. `noise_ns` is None if unknown. `is_clear`: the change exceeds the noise."""

    label: str
    change_ns: float
    noise_ns: float | None
    text: str
    is_clear: bool


def find_base_ns(start_ns: float, falls: Sequence[Fall]) -> float:
    """Return the start of a waterfall's axis in ns: zero, or a value below the lowest level and whisker."""
    reaches = _list_reaches(list_levels(start_ns, falls), falls)
    lowest, highest = min(low for low, _ in reaches), max(high for _, high in reaches)
    begin = lowest - ROOM_FRAC * max(highest - lowest, 0.02 * highest)
    return begin if begin > LEAST_CUT_FRAC * highest else 0.0


def list_levels(start_ns: float, falls: Sequence[Fall]) -> list[float]:
    """Return the total before the first change, and the total after each change."""
    levels = [start_ns]
    for fall in falls:
        levels.append(levels[-1] + fall.change_ns)
    return levels


def _list_reaches(levels: Sequence[float], falls: Sequence[Fall]) -> list[tuple[float, float]]:
    """Return for each change the least and the greatest value that its bar covers, with the whisker for its noise."""
    ends = zip(levels, levels[1:], falls, strict=False)
    return [
        (min(begin, end - (fall.noise_ns or 0.0)), max(begin, end + (fall.noise_ns or 0.0)))
        for begin, end, fall in ends
    ]


def build_waterfall(start_ns: float, end_ns: float, falls: Sequence[Fall], names: tuple[str, str, str]) -> Figure:
    """Return a figure of the changes between two totals. `names` label the first total, the last total and the axis."""
    levels = list_levels(start_ns, falls)
    tops = [high for _, high in _list_reaches(levels, falls)]
    scale, unit = choose_time_unit(max(*levels, end_ns))
    base, top = find_base_ns(start_ns, falls) / scale, max(*levels, *tops) / scale
    first, last, title = names
    totals = {
        "type": "bar",
        "x": [0, len(falls) + 1],
        "y": [start_ns / scale - base, end_ns / scale - base],
        "base": [base, base],
        "width": 0.5,
        "marker": {"color": PALETTE["host"][0]},
        "hovertemplate": f"%{{customdata:.4~g}} {unit}<extra></extra>",
        "customdata": [start_ns / scale, end_ns / scale],
    }
    layout: Figure = {
        "margin": {"l": 60, "r": 12, "t": 24, "b": 40},
        "showlegend": False,
        "barmode": "overlay",
        "xaxis": {
            "tickmode": "array",
            "tickvals": list(range(len(falls) + 2)),
            "ticktext": [plain_text(name) for name in (first, *(fall.label for fall in falls), last)],
            "fixedrange": True,
            "showgrid": False,
            "range": [-0.6, len(falls) + 1.6],
        },
        "yaxis": {
            "title": {"text": f"{title} ({unit})"},
            "fixedrange": True,
            "range": [base, top + 0.16 * (top - base)],
        },
        "shapes": [_join(place, level / scale) for place, level in enumerate(levels)],
    }
    return complete_figure(
        [totals, _draw_falls(levels, falls, scale, unit), _draw_labels(falls, tops, scale, base)], layout
    )


def _draw_falls(levels: Sequence[float], falls: Sequence[Fall], scale: float, unit: str) -> Figure:
    clear = [fall.is_clear for fall in falls]
    colors = ["worse" if fall.change_ns > 0 else "optimizer" for fall in falls]
    return {
        "type": "bar",
        "x": list(range(1, len(falls) + 1)),
        "y": [fall.change_ns / scale for fall in falls],
        "base": [level / scale for level in levels[: len(falls)]],
        "width": 0.5,
        "marker": {
            "color": [PALETTE[color if known else "idle"][0] for color, known in zip(colors, clear, strict=True)],
            "pattern": {"shape": ["" if known else "/" for known in clear], "fillmode": "replace", "solidity": 0.4},
        },
        "error_y": {
            "type": "data",
            "array": [(fall.noise_ns or 0.0) / scale for fall in falls],
            "color": PALETTE["idle"][0],
            "thickness": 1.5,
            "width": 4,
        },
        "hovertemplate": f"%{{y:+.4~g}} {unit}<extra></extra>",
    }


def _draw_labels(falls: Sequence[Fall], tops: Sequence[float], scale: float, base: float) -> Figure:
    """Return the text above each bar and its whisker. Plotly's own texts would lie on the whisker."""
    room = LABEL_FRAC * (max(tops) / scale - base)
    return {
        "type": "scatter",
        "mode": "text",
        "x": list(range(1, len(falls) + 1)),
        "y": [top / scale + room for top in tops],
        "text": [plain_text(fall.text) for fall in falls],
        "textposition": "top center",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _join(place: int, level: float) -> Figure:
    line = {"color": PALETTE["idle"][0], "width": 1, "dash": "dot"}
    return {"type": "line", "x0": place + 0.25, "x1": place + 0.75, "y0": level, "y1": level, "line": line}
