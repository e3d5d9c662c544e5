"""The steps of a rank and their charts: step time with a band of p50 to p95, stacked phases, and groups of phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints
from collector.format.phases import PHASE_COLORS, PHASE_LABELS, list_group
from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.steps import StepRows, StepSelection, read_integers, select_steps, train_steps
from profiler_server.analysis.steps.outliers import list_outliers
from profiler_server.analysis.steps.step_figures import find_beyond, trace_band
from profiler_server.figures.charts import Axes, Chart, Figure, Line, Stack, build_lines, build_stack, run_length
from profiler_server.format import fill_in, form_plural, format_count, format_duration, join_names, say_cut


@dataclass(frozen=True)
class StepData(StepRows):
    """The steps of a rank. `inside` limits `selection` and `column` to some of the steps: the position of the first
    one, and of the one after the last (None: no end).

    Which steps are averaged depends on all steps, including those outside of `inside`."""

    inside: tuple[int, int | None] = (0, None)

    @cached_property
    def selection(self) -> StepSelection:
        whole = select_steps(self.steps)
        return StepSelection(*(getattr(whole, entry.name)[slice(*self.inside)] for entry in fields(whole)))

    @cached_property
    def _train(self) -> pa.Table:
        return train_steps(self.steps)

    def column(self, name: str) -> Ints:
        return read_integers(self._train, name)[slice(*self.inside)]

    @property
    def nouns(self) -> str:
        return form_plural(self.noun)


def read_step_data(rank: RankRun) -> StepData:
    return StepData(**vars(read_step_rows(rank)))


def narrow(data: StepData, first: int, last: int) -> StepData:
    begin, end = np.searchsorted(data.selection.step, (first, last + 1)).tolist()
    return replace(data, inside=(begin, end))


SMALL_CHART_POINTS = 600
"""Most points of one line in a chart of half width, or with many lines."""
TABLE_ROWS = 40
"""Most rows of the table beside a chart. More steps are shown as means of equal groups of steps."""


@dataclass(frozen=True)
class LineChart:
    caption: str
    phases: tuple[str, ...]


LINE_CHARTS: Mapping[str, LineChart] = {
    "input": LineChart(
        "What every {noun} spends on getting its batch: waiting for the loader, then copying and preparing it.",
        list_group("input"),
    ),
    "compute": LineChart("What every {noun} spends in the model.", list_group("compute")),
    "update": LineChart(
        "Collectives that nothing hides, and what lies beside loading and the model.",
        list_group("update"),
    ),
}
CHART_NAMES = ("duration", "phases", *LINE_CHARTS)


def build_charts(data: StepData) -> tuple[Chart, ...]:
    """Build all charts of the page over all steps. A chart whose phases never occur is left out."""
    numbers = data.selection.step
    charts = [_duration_chart(data), _phases_chart(data)]
    for name, plan in LINE_CHARTS.items():
        phases = _present(data, plan.phases)
        if phases:
            values = {PHASE_LABELS[phase]: data.column(f"{phase}_ns") for phase in phases}
            title = join_names([*values])
            said = fill_in(plan.caption, noun=data.noun) + _say_cut(data)
            charts.append(_chart(name, (title, said), data, (numbers, values)))
    return tuple(charts)


def build_figure(name: str, data: StepData) -> Figure:
    numbers = data.selection.step
    if name == "duration":
        return _duration_figure(data)
    if name == "phases":
        phases = _present(data, tuple(PHASE_LABELS))
        parts = {phase: data.column(f"{phase}_ns") for phase in phases}
        return build_stack(Stack(numbers, parts, labels=PHASE_LABELS), _choose_axes(data))
    phases = _present(data, LINE_CHARTS[name].phases)
    lines = [Line(PHASE_LABELS[phase], PHASE_COLORS[phase], data.column(f"{phase}_ns")) for phase in phases]
    return build_lines(numbers, lines, _choose_axes(data, lines), SMALL_CHART_POINTS)


def _choose_axes(data: StepData, lines: Sequence[Line] = ()) -> Axes:
    """Return axes that cut off a few very long steps, so that the usual steps stay readable.

    The height fits the highest of `lines`. If `lines` is empty, the height fits whole steps.
    """
    axes = Axes(x_title=data.noun, x_range=_span(data.selection.step))
    beyond = find_beyond(data.selection)
    if beyond is None:
        return axes
    shown = ~np.isin(data.selection.step, beyond.step)
    peak = max((float(line.y[shown].max()) for line in lines), default=float(beyond.peak_ns))
    return replace(axes, y_peak=peak or None)


def _say_cut(data: StepData) -> str:
    beyond = find_beyond(data.selection)
    return say_cut(beyond.step, beyond.duration_ns, data.noun) if beyond is not None else ""


def _span(numbers: Ints) -> tuple[float, float] | None:
    """Return the x range that all charts share, so that a step has the same x in each chart; None without steps."""
    return (float(numbers[0]) - 0.5, float(numbers[-1]) + 0.5) if len(numbers) else None


def _duration_figure(data: StepData) -> Figure:
    numbers, durations = data.selection.step, data.selection.duration_ns
    kept = data.selection.kept
    band = trace_band(numbers[kept], durations[kept])
    slow = {outlier.step: outlier.duration_ns for outlier in list_outliers(data.steps).shown}
    lines = [Line(data.noun, "ink", durations)]
    if len(band.step):
        below = Line("p50", "idle", band.p50_ns, x=band.step)
        lines[:0] = [below, Line("p95", "idle", band.p95_ns, "band", x=band.step)]
    if slow:
        lines.append(Line("outlier", "worse", np.array([*slow.values()]), "points", x=np.array([*slow])))
    windows = _find_stretches(numbers[data.selection.detailed & ~kept])
    return build_lines(numbers, lines, replace(_choose_axes(data), shaded=windows))


def _find_stretches(numbers: Ints) -> list[tuple[float, float]]:
    """Return the ranges of consecutive step numbers, each widened by half a step at both ends, for shading."""
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(float(run[0]) - 0.5, float(run[-1]) + 0.5) for run in np.split(numbers, breaks) if len(run)]


def _duration_chart(data: StepData) -> Chart:
    kept = data.selection.kept
    window = trace_band(data.selection.step[kept], data.selection.duration_ns[kept]).window_steps
    over = f"each run of {format_count(window)} {data.nouns}" if window < kept.sum() else f"all averaged {data.nouns}"
    shaded = " Detailed windows are shaded." if (data.selection.detailed & ~kept).any() else ""
    band = f", over the band from the median to the 95th percentile of {over}" if window else ""
    caption = f"The length of every {data.noun}{band}.{shaded}{_say_cut(data)}"
    values = {f"Longest {data.noun}": data.selection.duration_ns}
    return _chart("duration", (f"{data.noun.capitalize()} time", caption), data, (data.selection.step, values), "max")


def _phases_chart(data: StepData) -> Chart:
    size = run_length(len(data.selection.step))
    each = f"the mean of {size} {data.nouns}; zoom in for single ones" if size > 1 else f"one {data.noun}"
    caption = f"What every {data.noun} is made of; the parts add up to it. A column is {each}.{_say_cut(data)}"
    values = {PHASE_LABELS[name]: data.column(f"{name}_ns") for name in _present(data, tuple(PHASE_LABELS))}
    return _chart("phases", ("Phases", caption), data, (data.selection.step, values))


def _chart(
    name: str, words: tuple[str, str], data: StepData, series: tuple[Ints, Mapping[str, Ints]], how: str = "mean"
) -> Chart:
    numbers, values = series
    return Chart(
        id=f"steps-{name}",
        title=words[0],
        caption=words[1],
        figure=build_figure(name, data),
        columns=(data.nouns.capitalize(), *values),
        rows=_tabulate(numbers, tuple(values.values()), how),
        size="tall" if name == "phases" else "medium",
        source=name,
    )


def _tabulate(numbers: Ints, columns: Sequence[Ints], how: str) -> tuple[tuple[str, ...], ...]:
    """Return a row per step, or per group of many steps, with the mean or the maximum (`how`) of each column."""
    size = run_length(len(numbers), TABLE_ROWS)
    rows = []
    for start in range(0, len(numbers), size):
        last = min(start + size, len(numbers)) - 1
        name = f"{numbers[start]}" if last == start else f"{numbers[start]}–{numbers[last]}"
        pieces = [column[start : last + 1] for column in columns]
        cells = (float(piece.max() if how == "max" else piece.mean()) for piece in pieces)
        rows.append((name, *(format_duration(cell) for cell in cells)))
    return tuple(rows)


def _present(data: StepData, phases: Sequence[str]) -> tuple[str, ...]:
    return tuple(phase for phase in phases if data.column(f"{phase}_ns").any())
