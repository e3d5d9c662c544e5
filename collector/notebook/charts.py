"""Draw Plotly figures of a run in a notebook: the charts that its pages draw."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any

from collector import server
from collector.format.schema.errors import OptionError, UsageError
from collector.notebook.pictures import draw_png
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
_INTERACTIVE = "application/vnd.plotly.v1+json"


def _define_chart(base: Any) -> Any:
    """Return the class of a Plotly figure that a notebook also keeps as a picture. Its own face is a script or nothing
    where no script runs."""

    class Chart(base):  # type: ignore[misc]
        _ipython_display_ = None  # would show the figure without the picture
        _repr_html_ = None  # would load a script from the network

        def __repr__(self) -> str:  # text of a terminal: the figure's own lists every number
            return f"<Figure: {self.layout.title.text}>"

        def _repr_mimebundle_(self, *args: Any, **options: Any) -> dict[str, Any]:
            shown: dict[str, Any] = super()._repr_mimebundle_(*args, **options)
            shown["text/plain"] = repr(self)
            if _INTERACTIVE in shown:
                shown.pop("text/html", None)  # a reader without scripts would choose this and show nothing
            with contextlib.suppress(ImportError):
                shown["image/png"] = base64.b64encode(draw_png(self.to_dict())).decode()
            return shown

    return Chart


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
    figure = _define_chart(objects.Figure)(drawn)
    figure.update_layout(title=title, template="plotly_white", margin={"t": 90})
    if drawn is None:
        figure.add_annotation(text=_NOTHING[kind], x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return figure
