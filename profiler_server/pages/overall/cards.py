"""The cards of the Overall page. Each is built by itself, so that one that fails leaves the others as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.steps import select_steps, summarize_steps
from profiler_server.analysis.operators.operators import TypeRow, summarize_operators, summarize_types
from profiler_server.analysis.steps.outliers import list_outliers
from profiler_server.analysis.steps.step_figures import find_beyond
from profiler_server.facts.results import OperatorRow
from profiler_server.figures import Axes, Chart, Line, Slice, build_lines, build_pie
from profiler_server.format import (
    format_count,
    format_duration,
    format_number_of,
    format_runs,
    format_share,
    format_steps,
    say_cut,
)

TYPES_SHOWN = 7
OPERATORS_SHOWN = 5


@dataclass(frozen=True)
class StepsCard:
    """The step along the run in small."""

    chart: Chart
    sentence: str


@dataclass(frozen=True)
class OperatorLine:
    """One operator: its part of the self time of all, 0 to 1, for a bar."""

    name: str
    self_time: str
    share: str
    share_frac: float


@dataclass(frozen=True)
class OperatorsCard:
    """`measure` says whose time it is: of the device where there is one, else of the host."""

    chart: Chart
    measure: str
    top: tuple[OperatorLine, ...]


@dataclass(frozen=True)
class TimelineCard:
    """Totals of the detailed windows, M41's four, as the Timeline page has them: operators are those of the host."""

    operator_time: str
    streams: str
    streams_label: str
    operators: str
    executions: str
    covered: str


def build_steps_card(steps: pa.Table, noun: str) -> StepsCard:
    """Draw the step time. `steps` must hold a training step or a batch of inference."""
    selection = select_steps(steps)
    beyond = find_beyond(selection)
    only = (float(selection.step[0]) - 0.5, float(selection.step[0]) + 0.5) if len(selection.step) == 1 else None
    axes = Axes(x_title=noun, legend=False, x_range=only, y_peak=beyond.peak_ns if beyond else None)
    figure = build_lines(selection.step, [Line(noun, "ink", selection.duration_ns, "area")], axes)
    outliers = list_outliers(steps)
    spread = summarize_steps(steps).duration_ns
    percentiles = [("p50", spread.p50), ("p95", spread.p95), ("max", spread.max)] if spread and spread.count > 1 else []
    rows = tuple((label, format_duration(value)) for label, value in percentiles if value is not None)
    words = " · ".join(f"{label} {text}" for label, text in rows)
    slow = format_number_of(outliers.count, "outlier") if outliers.limit_ns is not None else "too few to tell outliers"
    which = f" ({format_steps(outlier.step for outlier in outliers.shown)})" if outliers.count else ""
    caption = f"The length of every {noun}.{say_cut(beyond.step, beyond.duration_ns, noun) if beyond else ''}"
    chart = Chart("overall-steps", f"{noun.capitalize()} time", caption, figure, ("", f"{noun} time"), rows, "short")
    return StepsCard(chart, f"{words} · {slow}{which}" if words else f"{slow}{which}")


def build_operators_card(rank: RankRun) -> OperatorsCard:
    """Draw the families of operators by self time. Raises TableBrokenError or NewerSchemaError."""
    types, operators = summarize_types(rank), summarize_operators(rank)
    on_device = any(row.device_self_ns for row in types)
    measure = "device self time" if on_device else "host self time"
    total = sum(_own(row, on_device) for row in types)
    slices = _slice_types(types, on_device)
    rows = tuple((part.label, part.text, format_share(part.value / total if total else 0.0)) for part in slices)
    caption = f"Families of operators by {measure} in the detailed windows. “Smaller ones” is the sum of the rest."
    figure = build_pie(slices, format_duration(total))
    chart = Chart("overall-types", "Operator types", caption, figure, ("Type", "Self time", "Share"), rows)
    ranked = sorted(operators, key=lambda row: -_own(row, on_device))[:OPERATORS_SHOWN]
    return OperatorsCard(chart, measure, tuple(_describe_operator(row, total, on_device) for row in ranked))


def _own(row: TypeRow | OperatorRow, on_device: bool) -> int:
    return row.device_self_ns if on_device else row.self_ns


def _slice_types(types: Sequence[TypeRow], on_device: bool) -> list[Slice]:
    ranked = sorted(types, key=lambda row: -_own(row, on_device))
    slices = [
        Slice(row.type, _own(row, on_device), format_duration(_own(row, on_device))) for row in ranked[:TYPES_SHOWN]
    ]
    rest = sum(_own(row, on_device) for row in ranked[TYPES_SHOWN:])
    return [*slices, Slice("smaller ones", rest, format_duration(rest), "idle")] if rest else slices


def _describe_operator(row: OperatorRow, total: int, on_device: bool) -> OperatorLine:
    own = _own(row, on_device)
    share = own / total if total else 0.0
    return OperatorLine(row.name, format_duration(own), format_share(share), share)


def build_timeline_card(rank: RankRun) -> TimelineCard:
    """Sum what the timeline holds. Raises TableBrokenError or NewerSchemaError."""
    operators = summarize_operators(rank)
    kinds = (
        rank.table("tracks", ("kind",)).column("kind").cast(pa.string())
        if rank.status("tracks").state == "there"
        else None
    )
    streams = int(pc.sum(pc.equal(kinds, "stream")).as_py() or 0) if kinds is not None else 0
    threads = int(pc.sum(pc.equal(kinds, "thread")).as_py() or 0) if kinds is not None else 0
    windows = [(window.first_step, window.last_step) for window in rank.manifest.windows]
    several = len(windows) > 1 or any(first != last for first, last in windows)
    return TimelineCard(
        operator_time=format_duration(sum(row.self_ns for row in operators)),
        streams=format_count(streams or threads),
        streams_label=("stream" if streams else "thread") + ("" if (streams or threads) == 1 else "s"),
        operators=format_count(len(operators)),
        executions=format_count(sum(row.count for row in operators)),
        covered=f"{'steps' if several else 'step'} {format_runs(windows)}" if windows else "",
    )
