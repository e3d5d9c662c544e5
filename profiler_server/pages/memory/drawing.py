"""Charts of series over the steps, all on one range so that one stands below the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_server.analysis.memory.resources import Series
from profiler_server.figures import Axes, Chart, Line, build_lines
from profiler_server.figures.charts import Size

TABLE_ROWS = 40
COLORS = ("data", "copy", "optimizer", "overlap", "communication", "backward", "compute", "host")
Write = Callable[[float], str]


@dataclass(frozen=True)
class Drawn:
    """One series with its name and colour; `kind` is that of a Line."""

    name: str
    series: Series
    color: str
    kind: str = "line"


@dataclass(frozen=True)
class Look:
    """What a chart of series says. `unit` is that of the axis, `write` makes a cell of its table, `top` a dashed line."""

    id: str
    title: str
    caption: str
    y_title: str
    unit: str
    write: Write
    top: tuple[str, float] | None = None
    scale: float = 1.0
    size: Size = "medium"


def draw_series(look: Look, drawn: Sequence[Drawn], x_title: str) -> Chart:
    """Draw series over the steps; each is decimated by itself, the table shows means of equal stretches."""
    first = min(float(entry.series.x[0]) for entry in drawn)
    last = max(float(entry.series.x[-1]) for entry in drawn)
    lines = [
        Line(entry.name, entry.color, entry.series.value * look.scale, entry.kind, x=entry.series.x)  # type: ignore[arg-type]
        for entry in drawn
    ]
    if look.top is not None:
        name, value = look.top
        lines.append(Line(name, "idle", np.array([value, value]), "dash", x=np.array([first, last])))
    longest = max((entry.series.x for entry in drawn), key=len)
    span = (first, last) if last > first else (first - 0.5, last + 0.5)
    axes = Axes(x_title=x_title, y_title=look.y_title, unit=look.unit, x_range=span, legend=len(lines) > 1)
    return Chart(
        id=look.id,
        title=look.title,
        caption=look.caption,
        figure=build_lines(longest, lines, axes),
        columns=(x_title.capitalize(), *(entry.name for entry in drawn)),
        rows=_tabulate(drawn, first, last, look.write),
        size=look.size,
    )


def _tabulate(drawn: Sequence[Drawn], first: float, last: float, write: Write) -> tuple[tuple[str, ...], ...]:
    """Return the mean of each series in equal stretches of the axis, empty where it has no sample."""
    count = min(TABLE_ROWS, max(len(entry.series.x) for entry in drawn))
    edges = np.linspace(first, np.nextafter(last, np.inf), count + 1)
    columns = []
    for entry in drawn:
        at = np.clip(np.searchsorted(edges, entry.series.x, side="right") - 1, 0, count - 1)
        present = np.bincount(at, minlength=count)
        sums = np.bincount(at, weights=entry.series.value, minlength=count)
        columns.append([write(s / n) if n else "" for s, n in zip(sums.tolist(), present.tolist(), strict=True)])
    names = [f"{edge:,.1f}" for edge in edges[:-1]]
    return tuple(zip(names, *columns, strict=True))
