"""The chart of runs over time: a line per history, the range of each run's steps, and the changes of level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_server.figures.charts import LEGEND_ABOVE, Figure, color_of, complete_figure, plain_text
from profiler_server.format import choose_time_unit, format_change

COLORS = ("compute", "communication", "copy", "optimizer", "overlap", "data")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
"""Each line has a colour and a symbol of its own, so that no line is known by its colour alone."""
_MOST_TICKS = 5
LEAST_CUT_FRAC = 0.6
"""Share of the longest step above which all steps must lie for an axis that does not begin at zero."""


@dataclass(frozen=True)
class Dot:
    """One run. `place` is its number among all drawn runs, `low_ns` to `high_ns` the range of its steps. `text` is shown
    beside the pointer. `is_open`: the dot is not filled.
    """

    place: int
    step_ns: float
    low_ns: float
    high_ns: float
    text: Sequence[str]
    is_open: bool = False


@dataclass(frozen=True)
class Level:
    """Runs between two changes: `first` to `last` are places, `change_frac` is the change at `first`, None for none."""

    first: int
    last: int
    step_ns: float
    change_frac: float | None = None


@dataclass(frozen=True)
class Course:
    """The runs of one line, in order, and its levels; there are none without a change."""

    label: str
    dots: Sequence[Dot]
    levels: Sequence[Level] = ()


def find_base_ns(courses: Sequence[Course]) -> float:
    """Return the start of the axis in ns: zero, or a value below the shortest step."""
    low = min((dot.low_ns for course in courses for dot in course.dots), default=0.0)
    high = max((dot.high_ns for course in courses for dot in course.dots), default=0.0)
    return low - 0.2 * (high - low) if low > LEAST_CUT_FRAC * high else 0.0


def build_history(courses: Sequence[Course], ticks: Sequence[tuple[str, ...]]) -> Figure:
    """Return a figure of at most `len(COLORS)` lines. `ticks` has the lines of text for each place on the axis."""
    peak = max((dot.high_ns for course in courses for dot in course.dots), default=0.0)
    scale, unit = choose_time_unit(peak)
    base = find_base_ns(courses) / scale
    shown = [*range(0, len(ticks), -(-len(ticks) // _MOST_TICKS) or 1)]
    looks = [(color_of(color), symbol) for color, symbol in zip(COLORS, SYMBOLS, strict=True)]
    data = [_draw(course, look, scale, unit) for course, look in zip(courses, looks, strict=False)]
    levels = [(level, color) for course, (color, _) in zip(courses, looks, strict=False) for level in course.levels]
    layout: Figure = {
        "margin": {"l": 60, "r": 12, "t": 12, "b": 52},
        "showlegend": len(courses) > 1,
        "legend": LEGEND_ABOVE,
        "hovermode": "closest",
        "xaxis": {
            "tickmode": "array",
            "tickangle": 0,
            "tickvals": shown,
            "ticktext": ["<br>".join(map(plain_text, ticks[place])) for place in shown],
            "range": [-0.6, len(ticks) - 0.4],
            "zeroline": False,
            "showgrid": False,
        },
        "yaxis": {
            "title": {"text": f"median step ({unit})"},
            "range": [base, base + 1.2 * (peak / scale - base)],
            "zeroline": False,
            "fixedrange": True,
        },
        "shapes": [shape for level, color in levels for shape in _draw_level(level, color, scale)],
        "annotations": [_name_change(level) for level, _ in levels if level.change_frac is not None],
    }
    return complete_figure(data, layout)


def _draw(course: Course, look: tuple[str, str], scale: float, unit: str) -> Figure:
    color, symbol = look
    dots = course.dots
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain_text(course.label),
        "x": [dot.place for dot in dots],
        "y": [dot.step_ns / scale for dot in dots],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(dot.high_ns - dot.step_ns, 0.0) / scale for dot in dots],
            "arrayminus": [max(dot.step_ns - dot.low_ns, 0.0) / scale for dot in dots],
            "color": f"{color}80",
            "thickness": 1.2,
            "width": 3,
        },
        "line": {"color": color, "width": 1.2},
        "marker": {
            "color": color,
            "size": 8,
            "symbol": [f"{symbol}-open" if dot.is_open else symbol for dot in dots],
            "line": {"width": 1.5},
        },
        "customdata": ["<br>".join(map(plain_text, dot.text)) for dot in dots],
        "hovertemplate": f"%{{customdata}}<br>%{{y:.4~g}} {unit}<extra></extra>",
    }


def _draw_level(level: Level, color: str, scale: float) -> list[Figure]:
    height = level.step_ns / scale
    line: Figure = {"type": "line", "line": {"color": color, "width": 2, "dash": "dash"}}
    found = [{**line, "x0": level.first - 0.3, "x1": level.last + 0.3, "y0": height, "y1": height}]
    if level.change_frac is not None:
        at = level.first - 0.5
        thin = {"color": color_of("worse" if level.change_frac > 0 else "optimizer"), "width": 1.2, "dash": "dot"}
        found.append({"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": thin})
    return found


def _name_change(level: Level) -> Figure:
    change_frac = level.change_frac or 0.0
    mark = "▲" if change_frac > 0 else "▼"
    text = f"{mark} {format_change(change_frac)}"
    return {
        "x": level.first - 0.5,
        "xanchor": "left",
        "y": 1,
        "yref": "paper",
        "yanchor": "top",
        "showarrow": False,
        "text": text,
    }
