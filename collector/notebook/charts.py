"""Plotly figures of a run for a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from collector.format.phases import PALETTE, PHASES
from collector.format.rank import read_step_rows
from collector.format.schema.errors import OptionError, UsageError
from collector.format.steps import (
    SELECTED_COLUMNS,
    explain_average,
    read_integers,
    select_steps,
    summarize_phases,
    train_steps,
)
from collector.notebook.summaries import NO_STEPS

if TYPE_CHECKING:
    from collector.format.run import RankRun

_MOST_BARS = 20
_LIGHT = {name: light for name, (light, _) in PALETTE.items()}
_NOTHING = {
    "steps": NO_STEPS,
    "phases": NO_STEPS,
    "operators": "No operators were recorded: they are in detailed windows, Profiler(window=(first, count)).",
    "queues": "No queue of a DataLoader was sampled.",
    "stages": "No work of a data pipeline was recorded.",
}


def build_figure(rank: RankRun, kind: str, title: str) -> Any:
    """Return a `plotly.graph_objects.Figure`: steps, phases, operators, queues or stages.

    OptionError for another kind, UsageError if plotly is not installed, TableMissingError if the run lacks the table.
    For a table without rows, the figure shows a message.
    """
    if kind not in _BUILDERS:
        raise OptionError(f"there is no figure {kind!r}; choose from {', '.join(_BUILDERS)}")
    try:
        import plotly.graph_objects as objects
    except ImportError:
        raise UsageError("figures need plotly, which is not installed: pip install 'stepscope[notebook]'") from None
    figure = objects.Figure(layout={"title": title, "template": "plotly_white"})
    _BUILDERS[kind](figure, rank)
    if not any(len(drawn.x) for drawn in figure.data):
        figure.add_annotation(text=_NOTHING[kind], x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return figure


def _draw_steps(figure: Any, rank: RankRun) -> None:
    rows = read_step_rows(rank, ("kind", "step", *(phase.column for phase in PHASES)))
    steps = train_steps(rows.steps)
    for phase in PHASES:
        times = read_integers(steps, phase.column)
        if times.any():
            color = _LIGHT[phase.color]
            figure.add_bar(x=steps["step"].to_numpy(), y=times / 1e6, name=phase.label, marker_color=color)
    figure.update_layout(barmode="stack", bargap=0, xaxis_title=rows.noun, yaxis_title="ms")


def _draw_phases(figure: Any, rank: RankRun) -> None:
    rows = read_step_rows(rank, (*SELECTED_COLUMNS, *(phase.column for phase in PHASES)))
    steps, noun = rows.steps, rows.noun
    means = [phase.mean_ns / 1e6 for phase in summarize_phases(steps)]
    if not means:
        return
    covered = explain_average([select_steps(steps)], noun)
    figure.add_bar(
        y=[phase.label for phase in PHASES],
        x=means,
        orientation="h",
        marker_color=[_LIGHT[phase.color] for phase in PHASES],
    )
    figure.update_layout(xaxis_title=f"ms of the mean {noun}; {covered}")
    figure.update_yaxes(autorange="reversed")


def _draw_operators(figure: Any, rank: RankRun) -> None:
    keys = ("self_ns", "device_self_ns")
    rows = rank.table("operators", ("name", *keys))
    sums = rows.group_by("name", use_threads=False).aggregate([(key, "sum") for key in keys]).to_pylist()
    sums.sort(key=lambda row: (-row["device_self_ns_sum"], -row["self_ns_sum"]))
    shown = sums[:_MOST_BARS]
    names = [row["name"] for row in shown]
    for key, label, color in (("self_ns", "host", _LIGHT["host"]), ("device_self_ns", "device", _LIGHT["compute"])):
        times = [row[f"{key}_sum"] / 1e6 for row in shown]
        figure.add_bar(y=names, x=times, orientation="h", name=label, marker_color=color)
    figure.update_layout(barmode="group", xaxis_title="self time, ms")
    figure.update_yaxes(autorange="reversed")


def _draw_queues(figure: Any, rank: RankRun) -> None:
    samples = rank.table("queues", ("start_ns", "queue", "loader", "depth")).sort_by("start_ns")
    pairs = samples.group_by(["loader", "queue"], use_threads=False).aggregate([]).to_pylist()
    for pair in pairs:
        same = pc.and_(pc.equal(samples["loader"], pair["loader"]), pc.equal(samples["queue"], pair["queue"]))
        rows = samples.filter(same)
        label = pair["queue"] if (pair["loader"] or 0) <= 0 else f"{pair['queue']} (loader {pair['loader']})"
        times = rows["start_ns"].to_numpy() / 1e9
        figure.add_scatter(x=times, y=rows["depth"].to_numpy(), name=label, mode="lines", line={"shape": "hv"})
    figure.update_layout(xaxis_title="s since the run's start", yaxis_title="items ready")


def _draw_stages(figure: Any, rank: RankRun) -> None:
    rows = rank.table("stages", ("stage", "kind", "duration_ns"))
    sums = rows.group_by(["stage", "kind"], use_threads=False).aggregate([("duration_ns", "sum")]).to_pylist()
    kinds = {"work": _LIGHT["data"], "input_wait": _LIGHT["idle"], "output_wait": "#565d66", "setup": _LIGHT["copy"]}
    for kind, color in kinds.items():
        of_kind = [row for row in sums if row["kind"] == kind]
        if of_kind:
            times = [row["duration_ns_sum"] / 1e9 for row in of_kind]
            stages = [row["stage"] for row in of_kind]
            figure.add_bar(x=stages, y=times, name=kind.replace("_", " "), marker_color=color)
    figure.update_layout(barmode="stack", yaxis_title="s, all replicas")


_BUILDERS: dict[str, Callable[[Any, RankRun], None]] = {
    "steps": _draw_steps,
    "phases": _draw_phases,
    "operators": _draw_operators,
    "queues": _draw_queues,
    "stages": _draw_stages,
}
FIGURES = tuple(_BUILDERS)
