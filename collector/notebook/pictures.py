"""Draw a chart of the pages as a PNG, for readers of a notebook that run no JavaScript, such as GitHub and nbconvert."""

from __future__ import annotations

import io
from typing import Any

SIZE_INCHES = (9.0, 3.6)


def draw_png(figure: dict[str, Any]) -> bytes:
    """Return a Plotly dict of lines, stacked bars or a ring as a PNG. ImportError if matplotlib is not installed."""
    from matplotlib.figure import Figure  # without pyplot, which would keep the figure and choose a backend

    picture = Figure(SIZE_INCHES, layout="constrained")
    axes = picture.add_subplot()
    layout = figure.get("layout", {})
    tops: Any = 0.0
    below: Any = 0.0
    for trace in figure.get("data", ()):
        if trace["type"] == "pie":
            _draw_ring(axes, trace)
        elif trace["type"] == "bar":
            axes.bar(trace["x"], trace["y"], trace.get("width", 0.8), tops, color=_find_color(trace["marker"]))
            axes.patches[-1].set_label(trace.get("name"))
            tops = tops + _as_array(trace["y"])
        else:
            _draw_line(axes, trace, below)
            below = _as_array(trace["y"])
    _label(axes, layout)
    target = io.BytesIO()
    picture.savefig(target, format="png", dpi=100)
    return target.getvalue()


def _as_array(values: Any) -> Any:
    import numpy as np

    return np.array([np.nan if value is None else value for value in values], float)


def _find_color(style: dict[str, Any], default: str = "#868d95") -> str:
    color = style.get("color")
    return color if isinstance(color, str) else default


def _draw_line(axes: Any, trace: dict[str, Any], below: Any) -> None:
    x, y = trace["x"], _as_array(trace["y"])
    line = trace.get("line", {})
    if trace.get("mode") == "markers":
        axes.plot(x, y, "o", color=_find_color(trace.get("marker", {})), markersize=4, label=trace.get("name"))
        return
    is_step = line.get("shape") == "hv"
    width, dash = line.get("width", 1.5), "--" if line.get("dash") else "-"
    drawn = "steps-post" if is_step else "default"
    axes.plot(x, y, dash, color=_find_color(line), linewidth=width, drawstyle=drawn, label=trace.get("name"))
    if fill := trace.get("fill"):
        lower = below if fill == "tonexty" else 0.0
        axes.fill_between(x, lower, y, color=trace.get("fillcolor"), step="post" if is_step else None)


def _draw_ring(axes: Any, trace: dict[str, Any]) -> None:
    wedges, *_ = axes.pie(
        trace["values"],
        colors=trace["marker"].get("colors"),
        startangle=90,
        counterclock=False,
        wedgeprops={"width": 1 - trace.get("hole", 0.0), "edgecolor": "white"},
    )
    total = sum(trace["values"]) or 1
    names = [
        f"{name}, {100 * value / total:.1f} %" for name, value in zip(trace["labels"], trace["values"], strict=True)
    ]
    axes.legend(wedges, names, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _label(axes: Any, layout: dict[str, Any]) -> None:
    axes.set_title(layout.get("title", {}).get("text", ""), fontsize="medium", loc="left")
    for name, put, limit in (("xaxis", axes.set_xlabel, axes.set_xlim), ("yaxis", axes.set_ylabel, axes.set_ylim)):
        axis = layout.get(name, {})
        put(axis.get("title", {}).get("text", ""))
        if axis.get("range"):
            limit(*axis["range"])
        elif axis.get("rangemode") == "tozero":
            limit(0, 1.05 * axes.get_ylim()[1])
    for shape in layout.get("shapes", ()):
        if shape["type"] == "rect":
            axes.axvspan(shape["x0"], shape["x1"], color=shape["fillcolor"], linewidth=0)
    for note in layout.get("annotations", ()):
        axes.text(note["x"], note["y"], note["text"], transform=axes.transAxes, ha="center", va="center")
    if axes.get_legend_handles_labels()[1] and axes.get_legend() is None:
        axes.figure.legend(ncols=4, loc="outside upper center", frameon=False, fontsize="small")
    if not axes.lines and not axes.patches:
        axes.set_axis_off()
