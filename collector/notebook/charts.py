"""Draw Plotly figures of a run in a notebook: the charts that its pages draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collector import server
from collector.format.schema.errors import OptionError, UsageError
from collector.notebook.summaries import NO_STEPS

if TYPE_CHECKING:
    from collector.format.run import RankRun

_NOTHING = {
    "steps": NO_STEPS,
    "phases": NO_STEPS,
    "operators": "No operators were recorded: they are in detailed windows, Profiler(window=(first, count)).",
    "queues": "No queue of a DataLoader was sampled.",
}
"""What stands in a figure of nothing, by kind."""


def build_figure(rank: RankRun, kind: str, title: str) -> Any:
    """Return a `plotly.graph_objects.Figure`. `kind` is steps, phases, operators or queues.

    OptionError for another kind, UsageError if plotly or the server is not installed, TableMissingError if the run
    lacks the table. If there is nothing to draw, the figure shows a message.
    """
    if kind not in _NOTHING:
        raise OptionError(f"there is no figure {kind!r}; choose from {', '.join(_NOTHING)}")
    try:
        import plotly.graph_objects as objects

        drawn = server.draw_figure(rank, kind)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise UsageError(f"figures need {missing}, which is not installed: pip install 'stepscope[notebook]'") from None
    figure = objects.Figure(drawn)
    figure.update_layout(title=title, template="plotly_white", margin={"t": 90})
    if drawn is None:
        figure.add_annotation(text=_NOTHING[kind], x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return figure
