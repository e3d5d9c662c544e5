"""The cards of the Overall page. Each card is built separately, so a failure in one leaves the other cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.steps import select_steps, summarize_steps
from profiler_server.analysis.data.queues import read_queues, sum_queues
from profiler_server.analysis.data.stages import select_own, share_steps, sum_stages, summarize_own
from profiler_server.analysis.operators.mfu import measure_mfu
from profiler_server.analysis.operators.operators import TypeRow, summarize_operators, summarize_types
from profiler_server.analysis.steps.outliers import list_outliers
from profiler_server.analysis.steps.start_up import measure_start_up
from profiler_server.analysis.steps.step_figures import find_beyond
from profiler_server.analysis.steps.tokens import measure_tokens
from profiler_server.diagnosis.bottleneck import find_own_bottleneck, read_limit
from profiler_server.diagnosis.limits.steps import LEAST_USUAL
from profiler_server.diagnosis.readings import read_watched
from profiler_server.diagnosis.start_sentences import is_worth_a_bar, say_basis, say_since
from profiler_server.diagnosis.use_sentences import say_tokens, say_use
from profiler_server.facts.loading import Bottleneck
from profiler_server.facts.pipeline import QueueSummary, StageSummary
from profiler_server.facts.results import OperatorRow
from profiler_server.facts.start_up import CAUSES, Cause
from profiler_server.figures.charts import Axes, Chart, Line, Slice, build_lines, build_pie
from profiler_server.figures.strips import Bar, percent
from profiler_server.format import (
    fill_in,
    form_plural,
    format_count,
    format_duration,
    format_number_of,
    format_runs,
    format_share,
    format_steps,
    say_cut,
)
from profiler_server.page import DATA_REMEDY, Notice, build_part, explain_absence
from profiler_server.widgets import Part, Stat, build_parts

TYPES_SHOWN = 7
OPERATORS_SHOWN = 5


@dataclass(frozen=True)
class StepsCard:
    """A small chart of the time of every step, and a sentence on the percentiles and outliers of these times."""

    chart: Chart
    sentence: str


@dataclass(frozen=True)
class OperatorsCard:
    """The card of operators. `measure` is `device self time` if any operator has device time, else `host self time`.

    `top` has the operators with the most self time: name, self time in ns, share of the self time of all operators.
    """

    chart: Chart
    measure: str
    top: tuple[tuple[str, int, float], ...]


@dataclass(frozen=True)
class TimelineCard:
    """Totals of the detailed windows, as on the Timeline page. Figures of operators are of the host only. `covered`
    names the steps of the windows; it is "" without a window.
    """

    figures: tuple[Stat, ...]
    covered: str


def build_steps_card(steps: pa.Table, noun: str) -> StepsCard:
    """Return the card on step times. `steps` must have a training step, or a batch of inference (`noun` is batch)."""
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
    slow = f"outliers are looked for from {LEAST_USUAL} {form_plural(noun)} on"
    if outliers.limit_ns is not None:
        slow = format_number_of(outliers.count, "outlier")
    which = f" ({format_steps(outlier.step for outlier in outliers.shown)})" if outliers.count else ""
    caption = f"The length of every {noun}.{say_cut(beyond.step, beyond.duration_ns, noun) if beyond else ''}"
    chart = Chart("overall-steps", f"{noun.capitalize()} time", caption, figure, ("", f"{noun} time"), rows, "short")
    return StepsCard(chart, f"{words} · {slow}{which}" if words else f"{slow}{which}")


def build_operators_card(rank: RankRun) -> OperatorsCard:
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
    return OperatorsCard(
        chart, measure, tuple((row.name, own := _own(row, on_device), own / total if total else 0.0) for row in ranked)
    )


def _own(row: TypeRow | OperatorRow, on_device: bool) -> int:
    return row.device_self_ns if on_device else row.self_ns


def _slice_types(types: Sequence[TypeRow], on_device: bool) -> list[Slice]:
    ranked = sorted(types, key=lambda row: -_own(row, on_device))
    slices = [
        Slice(row.type, _own(row, on_device), format_duration(_own(row, on_device))) for row in ranked[:TYPES_SHOWN]
    ]
    rest = sum(_own(row, on_device) for row in ranked[TYPES_SHOWN:])
    return [*slices, Slice("smaller ones", rest, format_duration(rest), "idle")] if rest else slices


def build_timeline_card(rank: RankRun) -> TimelineCard:
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
    label = ("Stream" if streams else "Thread") + ("" if (streams or threads) == 1 else "s")
    return TimelineCard(
        figures=(
            Stat("Operator time, host", format_duration(sum(row.self_ns for row in operators))),
            Stat(label, format_count(streams or threads)),
            Stat("Operators", format_count(len(operators))),
            Stat("Executions", format_count(sum(row.count for row in operators))),
        ),
        covered=f"{fill_in('{nouns}' if several else '{noun}')} {format_runs(windows)}" if windows else "",
    )


def list_useful_stats(rank: RankRun, steps: pa.Table, noun: str) -> Iterator[Stat]:
    tokens, _ = build_part("The tokens cannot be counted", lambda: measure_tokens(rank, steps))
    if tokens is not None:
        yield Stat("Useful tokens", format_share(tokens.real_frac), say_tokens(tokens, noun), None)
    use, _ = build_part("The utilisation cannot be read", lambda: measure_mfu(rank))
    if use is not None and use.frac is not None:
        yield Stat("MFU", format_share(use.frac), say_use(use, noun), "operators")


_COLORS: dict[Cause, str] = {
    "before": "host",
    "imports": "host",
    "recording": "host",
    "data": "data",
    "weights": "optimizer",
    "setup": "communication",
    "compile": "overlap",
    "first_batch": "data",
    "script": "copy",
    "unseen": "idle",
    "step": "compute",
}


@dataclass(frozen=True)
class StartCard:
    """The time to the first step as a bar of its parts. `sentence` says from when on it counts and how sure it is.

    `rows` has each part with the user's line that takes most of it, as place and text; "" if unknown.
    """

    noun: str
    total: str
    bars: tuple[Bar, ...]
    rows: tuple[tuple[Part, str], ...]
    sentence: str


def read_start_card(rank: RankRun) -> StartCard | None:
    """Return the card; None if the time is short, unknown, or cannot be read."""
    start, _ = build_part("The time to the first step cannot be read", lambda: measure_start_up(rank))
    if start is None or not is_worth_a_bar(start):
        return None
    since, whole_ns = say_since(start), start.total_ns
    words = [(fill_in(part.label), _COLORS[part.cause], fill_in(CAUSES[part.cause][1])) for part in start.parts]
    parts = build_parts(words, [part.duration_ns for part in start.parts], whole_ns)
    begins = accumulate((part.duration_ns for part in start.parts), initial=0)
    bars = (
        Bar(
            percent(begin, whole_ns), percent(part.duration_ns, whole_ns), row.color, "", f"{row.label}: {row.duration}"
        )
        for begin, part, row in zip(begins, start.parts, parts, strict=False)
    )
    lines = (f"{part.place}, {part.line}" if part.line else part.place for part in start.parts)
    sentence = f"{since[:1].upper()}{since[1:]}. {say_basis(start)}"
    rows = tuple(zip(parts, lines, strict=True))
    return StartCard(start.noun, format_duration(whole_ns), tuple(bars), rows, sentence)


@dataclass(frozen=True)
class DataCard:
    """The card of the data pipeline. `limiting` names the stage that limits the step, None if no stage does."""

    sentence: str
    queues: tuple[QueueSummary, ...]
    stages: tuple[StageSummary, ...]
    limiting: str | None = None


def read_data_card(
    rank: RankRun, loader: int | None, wait_frac: float | None, steps: pa.Table | None = None, noun: str = "step"
) -> DataCard | Notice:
    """Return the card of the loader `loader` (None: of all loaders), or a notice on why there is no card. Raises as
    `RankRun.table`.

    `wait_frac` is the share of the mean step that is data wait, None without steps. `steps` is the table of steps.
    """
    watched = next((entry for entry in rank.manifest.loaders if entry.id == loader and entry.watched), None)
    if watched is not None and wait_frac is not None:
        reading = read_watched(watched, wait_frac, noun)
        return DataCard(f"{reading.title}. {reading.text}", (), ())
    absences = {name: explain_absence(rank, name, "No data pipeline", DATA_REMEDY) for name in ("stages", "queues")}
    failed = next((notice for notice in absences.values() if notice and notice.state == "failed"), None)
    if failed or all(absences.values()):
        return failed or absences["queues"] or Notice("empty", "No data pipeline", "No DataLoader was used.")
    rows = None if absences["stages"] else _of_loader(rank.table("stages"), loader)
    stages = () if rows is None else sum_stages(rows)
    if rows is not None and steps is not None:
        stages = share_steps(stages, rows, steps)
    samples = None if absences["queues"] else _of_loader(read_queues(rank), loader)
    limit = Bottleneck(None, "Without steps no stage can be said to limit them.")
    own = () if absences["stages"] else summarize_own(select_own(rank.table("stages")))
    if own and loader is None:
        limit = find_own_bottleneck(own)
        stages = tuple(stage.summary for stage in own)
    if wait_frac is not None:
        limit = read_limit(rank, loader)
    queues = () if samples is None else sum_queues(samples)
    return DataCard(limit.reason, tuple(queues), tuple(stages), limit.stage)


def _of_loader(rows: pa.Table, loader: int | None) -> pa.Table:
    """Return the rows of `loader` and of the user's own stages and queues. If `loader` is None, return all rows."""
    return rows if loader is None else rows.filter(pc.fill_null(pc.equal(rows["loader"], loader), True))
