"""The report of a run as one HTML file that needs no server, network or script."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.format.attempts import find_home
from collector.format.phases import PHASE_COLORS, PHASE_LABELS
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.steps import StepSelection, explain_average, select_steps, summarize_phases
from profiler_server.analysis.operators.operator_groups import Measure
from profiler_server.analysis.steps.step_graph import average_graph
from profiler_server.figures.charts import average_runs
from profiler_server.figures.strips import Strip, build_strip
from profiler_server.format import format_duration, format_phase_shares
from profiler_server.report import ALONE, Reporting, build_report
from profiler_server.report.text import explain_silence, say_verdict
from profiler_server.store.redaction import redact as redact_run
from profiler_server.web.frontend import Templates, find_frontend
from profiler_server.web.links import Links

STYLES = ("tokens", "components", "figure", "overall", "report")
RANKS_SHOWN, ROWS_SHOWN, POINTS = 16, 30, 600


@dataclass(frozen=True)
class StepCurve:
    """The durations of the steps as points of an SVG polyline in a box of 1000 × 100. `peak` is the greatest
    duration as text, `first` and `last` are the numbers of the first and the last step.
    """

    points: str
    peak: str
    first: int
    last: int


@dataclass(frozen=True)
class RankView:
    """One rank of the report: `data` is its part of the report, `total` its mean step as text ("" without steps).
    The other fields are drawings of its mean step and steps, None or empty without steps."""

    data: dict[str, Any]
    total: str
    strip: Strip | None
    parts: tuple[tuple[str, str, str, str], ...]
    """Label, colour, mean and share of each phase."""
    curve: StepCurve | None

    @property
    def measure(self) -> Measure:
        """Return where operators' self time is measured: on the device if any operator used one, else on the host."""
        return "device" if any(row["device_self_ns"] for row in self.data["operators"]) else "host"


def render_report(run: Run, redact: bool = False, rank: int | None = None, how: Reporting = ALONE) -> str:
    """Return the report as HTML; with `rank`, only for this rank. `how` is passed to `build_report`, whose errors pass
    through.

    With `redact`, the file has no name that the user gave.
    """
    shown = redact_run(run) if redact else run
    report = build_report(shown, rank, how)
    sentence, silence = say_verdict(shown, rank), explain_silence(shown, rank)
    if redact:
        # Other attempts of the job lie beside a run, or in the parent folder of a run that was set aside.
        home = str(find_home(run.path.absolute()))
        report, sentence, silence = (_hide_path(part, home) for part in (report, sentence, silence))
    ranks = tuple(_view_rank(shown.rank(each["rank"]), each) for each in report["ranks"][:RANKS_SHOWN])
    templates = Templates(find_frontend() / "templates", Links(lambda: ""))
    return templates.render(
        "report.html",
        style=_embed_styles(),
        report=report,
        sentence=sentence,
        silence=silence,
        average=explain_average(_select_steps(shown, [view.data["rank"] for view in ranks])),
        ranks=ranks,
        ranks_left_out=len(report["ranks"]) - len(ranks),
        rows=ROWS_SHOWN,
        is_redacted=redact,
    )


def _hide_path(part: Any, path: str) -> Any:
    """Return a section of the report in which `RUN` replaces the folder `path` in every text."""
    if isinstance(part, dict):
        return {name: _hide_path(entry, path) for name, entry in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(_hide_path(entry, path) for entry in part)
    return part.replace(path, "RUN") if isinstance(part, str) else part


def _embed_styles() -> str:
    """Return the style sheets as a data URL, so that the file is self-contained."""
    folder = find_frontend() / "static/css"
    text = "\n".join((folder / f"{name}.css").read_text("utf-8") for name in STYLES)
    # Without the script that sets a theme, the system's wish decides.
    dark = re.compile(r':root\[data-theme="dark"\] (\{[^}]*\})')
    text = dark.sub(r"@media (prefers-color-scheme: dark) { :root \1 }", text)
    return f"data:text/css;base64,{base64.b64encode(text.encode()).decode()}"


def _select_steps(run: Run, ranks: Sequence[int]) -> Iterator[StepSelection]:
    for rank in ranks:
        with suppress(RunError):  # said in the warnings already
            yield select_steps(read_step_rows(run.rank(rank)).steps)


def _view_rank(rank: RankRun, data: dict[str, Any]) -> RankView:
    try:
        steps = read_step_rows(rank).steps
        phases = [phase for phase in summarize_phases(steps) if phase.mean_ns > 0]
    except RunError:
        return RankView(data, "", None, (), None)
    if not phases:
        return RankView(data, "", None, (), None)
    graph = average_graph(phases)
    shares = format_phase_shares({phase.name: phase.share_frac for phase in phases})
    parts = tuple(
        (PHASE_LABELS[p.name], PHASE_COLORS[p.name], format_duration(p.mean_ns), shares[p.name]) for p in phases
    )
    strip = build_strip([(s.phase, s.start_ns, s.duration_ns) for s in graph.stretches], graph.duration_ns)
    selection = select_steps(steps)
    return RankView(
        data, format_duration(graph.duration_ns), strip, parts, _draw_curve(selection.step, selection.duration_ns)
    )


def _draw_curve(numbers: Any, durations: Any) -> StepCurve | None:
    """Draw the durations of the steps. If there are many steps, draw the mean durations of groups of consecutive steps.
    None for fewer than two steps.
    """
    if len(durations) < 2:
        return None
    values = average_runs(durations, POINTS)
    peak = float(values.max()) or 1.0
    places = np.linspace(0, 1000, len(values))
    points = " ".join(f"{x:.1f},{100 - 96 * y / peak:.1f}" for x, y in zip(places, values, strict=True))
    return StepCurve(points, format_duration(peak), int(numbers[0]), int(numbers[-1]))
