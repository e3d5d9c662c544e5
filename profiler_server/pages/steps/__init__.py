"""The Step trace page: the phases of the mean step or of a single step, and the course of step times along the run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import sum_recorded, summarize_evaluation, summarize_phases, summarize_steps
from profiler_server.analysis.steps.interruptions import WindowReason, explain_windows, read_interruptions
from profiler_server.analysis.steps.step_figures import count_micro_batches, summarize_spread
from profiler_server.analysis.steps.step_graph import average_graph, summarize_device_phases, trace_step
from profiler_server.facts.steps import HeldSum, sum_interruptions
from profiler_server.figures.charts import Chart
from profiler_server.format import describe_micro_batches, format_count
from profiler_server.page import Notice, Page, PageRequest, build_part, read_steps
from profiler_server.pages.steps.charts import StepData, build_charts
from profiler_server.pages.steps.graph import GraphView, view_graph
from profiler_server.pages.steps.tables import (
    INTERRUPTION_ROWS,
    WINDOW_ROWS,
    Coverage,
    EvaluationView,
    OutlierTable,
    Points,
    RequestsView,
    WindowControl,
    describe_collectives,
    describe_coverage,
    describe_device_phases,
    describe_evaluation,
    describe_outliers,
    describe_points,
    explain_spread,
    list_percentiles,
    list_steadiness,
    view_requests,
    view_window_control,
)
from profiler_server.stack_panel import StackPanel, build_phase_panel
from profiler_server.widgets import Stat


@dataclass(frozen=True)
class Picker:
    """The choice of a step. `step` is None for the average. `error` says why `?step=` is invalid, "" if it is valid."""

    step: int | None
    first: int
    last: int
    previous: int | None
    next: int | None
    error: str


@dataclass(frozen=True)
class Trace:
    """The content for a rank with steps. `start_ns` and `end_ns` bound the shown step, and are None for the average."""

    noun: str
    nouns: str
    picker: Picker
    graph: GraphView
    on_device: str
    collectives: str
    start_ns: int | None
    end_ns: int | None
    coverage: Coverage
    micro_batches: str
    percentiles: tuple[Stat, ...]
    more_percentiles: tuple[Stat, ...]
    spread: str
    steadiness: tuple[Stat, ...]
    outliers: OutlierTable
    interruptions: tuple[HeldSum, ...]
    recorded_ns: int
    windows: tuple[WindowReason, ...]
    charts: tuple[Chart, ...]
    evaluation: EvaluationView | None
    requests: RequestsView | None
    points: Points | None
    stacks: StackPanel | None


@dataclass(frozen=True)
class StepsPage:
    """A trace, or a notice on why there is none. `window_control` is None unless the run still records."""

    notice: Notice | None
    trace: Trace | None
    window_control: WindowControl | None = None


def build(request: PageRequest) -> StepsPage:
    """Build the page. `?step=` selects one step. Without `?step=`, or with an invalid number, the average is shown."""
    rank, wanted = request.chosen_steps, request.query.get("step", "")
    trace, notice = build_part("The steps cannot be read", lambda: _build(rank, wanted))
    with suppress(RunError):
        return StepsPage(notice, trace, view_window_control(request.run, request.rank_run))
    return StepsPage(notice, trace)


def _build(rank: RankRun, wanted: str) -> Trace | Notice:
    rows = read_steps(rank, "No steps")
    return rows if isinstance(rows, Notice) else _trace(rank, StepData(**vars(rows)), wanted)


def _trace(rank: RankRun, data: StepData, wanted: str) -> Trace:
    picker = pick_step(data, wanted)
    is_only = len(data.selection.step) == 1
    step = picker.first if is_only else picker.step
    graph = trace_step(rank, data.steps, step) if step is not None else None
    graph = graph or average_graph(summarize_phases(data.steps))
    interruptions, spread = read_interruptions(rank), summarize_steps(data.steps).duration_ns
    percentiles, more_percentiles = list_percentiles(spread)
    average = f"The only {data.noun}" if is_only else f"Average {data.noun}"
    title = average if picker.step is None else f"{data.noun.capitalize()} {picker.step:,}"
    return Trace(
        noun=data.noun,
        nouns=data.nouns,
        picker=picker,
        graph=view_graph(graph, summarize_spread(data.steps), title, data.noun),
        on_device=describe_device_phases(summarize_device_phases(rank)),
        collectives=describe_collectives(data, step),
        start_ns=graph.start_ns,
        end_ns=None if graph.start_ns is None else graph.start_ns + int(graph.duration_ns),
        coverage=describe_coverage(data),
        micro_batches="" if data.infers else describe_micro_batches(count_micro_batches(data.steps)),
        percentiles=percentiles,
        more_percentiles=more_percentiles,
        spread=explain_spread(spread, data),
        steadiness=list_steadiness(data),
        outliers=describe_outliers(data, interruptions),
        interruptions=sum_interruptions(interruptions)[:INTERRUPTION_ROWS],
        recorded_ns=sum_recorded(data.every),
        windows=explain_windows(rank.manifest)[-WINDOW_ROWS:],
        charts=build_charts(data),
        evaluation=None if data.infers else describe_evaluation(summarize_evaluation(data.every)),
        requests=view_requests(rank),
        points=None if data.infers else describe_points(rank.manifest),
        stacks=build_phase_panel(rank),
    )


def pick_step(data: StepData, wanted: str) -> Picker:
    """Return the step whose number is `wanted`. If it is invalid or not recorded, return the average and an error."""
    numbers = data.selection.step
    first, last = int(numbers[0]), int(numbers[-1])
    if wanted in ("", "avg"):
        return Picker(None, first, last, None, first, "")
    there = f"this run has {data.nouns} {format_count(first)} to {format_count(last)}. The average is shown."
    if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= 15):
        return Picker(None, first, last, None, first, f"“{wanted[:40]}” is not the number of a {data.noun}; {there}")
    step = int(wanted)
    at = int(np.searchsorted(numbers, step))
    if at == len(numbers) or numbers[at] != step:
        return Picker(None, first, last, None, first, f"There is no {data.noun} {format_count(step)}; {there}")
    before = int(numbers[at - 1]) if at else None
    after = int(numbers[at + 1]) if at + 1 < len(numbers) else None
    return Picker(step, first, last, before, after, "")


PAGE = Page(
    slug="steps", title="{Noun} trace", order=20, key="s", template="steps.html", build=build, follows_steps=True
)
