"""The only file that imports the server, a package installed beside this one. Each function imports the server when
called, so that no training loads it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collector.format.run import RankRun, Run
    from profiler_server.diagnosis.knobs import Change
    from profiler_server.facts.results import Suggestion

SERVER = "profiler_server"


def find_missing_package() -> str | None:
    """Return the first package that the server's commands need and that is not installed; None if all are installed."""
    return next((name for name in (SERVER, "typer", "scipy") if importlib.util.find_spec(name) is None), None)


def diagnose(run: Run, rank: int) -> tuple[str, tuple[Suggestion, ...], str]:
    """Return a rank's verdict, its suggestions, and why there are none ("" if there are some). Raises the errors of
    `RankRun.table`."""
    from profiler_server.diagnosis.judging import diagnose

    found = diagnose(run, rank)
    return found.sentence, found.suggestions, found.silence


def list_changes(run: Run, rank: int) -> list[Change]:
    """Return the changes of settings that may shorten a rank's step, the largest possible gain first.

    The list is empty if the rank has nothing to measure. Raises the errors of `RankRun.table`.
    """
    from profiler_server.diagnosis.judging import diagnose
    from profiler_server.diagnosis.knobs import list_changes
    from profiler_server.diagnosis.measuring import measure_case

    case = measure_case(run, run.rank(rank))
    asked = [each.settings for each in diagnose(run, rank).suggestions]
    return list_changes(case, {name: value for each in reversed(asked) for name, value in each.items()}) if case else []


def draw_figure(rank: RankRun, kind: str) -> dict[str, Any] | None:
    """Return a chart of the pages as a Plotly dict; None if its data was not recorded.

    `kind` is "steps" (the time of each step), "phases", "operators" (by type), or "queues" (the depth of the first
    queue of the first loader). Raises the errors of `RankRun.table`.
    """
    from profiler_server.analysis.data.stages import find_loader
    from profiler_server.analysis.operators.operator_groups import GROUPS
    from profiler_server.pages.data.facts import PipelineFacts
    from profiler_server.pages.data.interval import chart_depths
    from profiler_server.pages.operators.charts import build_chart
    from profiler_server.pages.operators.state import PageState
    from profiler_server.pages.steps.charts import build_figure, read_step_data

    if kind == "operators":
        chart = build_chart(GROUPS["types"].tabulate(rank, None), PageState(), "types")
        return chart.figure if chart else None
    if kind == "queues":
        facts = PipelineFacts(rank, find_loader(rank))
        return next((chart_depths(facts.samples, key, "depth").figure for key in facts.queues), None)
    steps = read_step_data(rank)
    return build_figure("duration" if kind == "steps" else kind, steps) if len(steps.selection.step) else None


def format_duration(value_ns: float) -> str:
    from profiler_server.format import format_duration

    return format_duration(value_ns)


def say_gain(entry: Suggestion) -> str:
    from profiler_server.format import say_gain

    return say_gain(entry)


def read_least_pairs() -> int:
    """Return the least number of pairs of runs from which the gate gives a verdict."""
    from profiler_server.diagnosis.limits.compare import LEAST_RUNS

    return LEAST_RUNS


def check_share(text: str) -> None:
    """Raise UsageError if `text` is not a slowdown that the gate accepts as its limit, such as 0.03 or 3 %."""
    from profiler_server.commands.compare import parse_share

    parse_share(text)


def write_undecided(reason: str, junit: Path | None, markdown: Path | None) -> None:
    """Write why there is no verdict to the gate's files `junit` and `markdown`, if not None. Raises OutputError."""
    from profiler_server.commands.compare import write_documents
    from profiler_server.report.gate import build_undecided

    write_documents(build_undecided(reason), junit, markdown)


def measure_use(rank: RankRun) -> dict[str, float]:
    """Return the known ones of: `samples_per_second`; `tokens_per_second`, `useful_tokens_per_second` and
    `useful_token_ratio`, without padding; `mfu`; and `first_step_seconds`. Raises the errors of `RankRun.table`."""
    from profiler_server.report.useful import measure_use

    return measure_use(rank)
