"""The Overall page: what bounds the step, the mean step, and cards on steps, operators, data pipeline and timeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from collector.format.finding import BASE_ID, name_run
from collector.format.phases import PHASE_COLORS, PHASE_LABELS
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest
from collector.format.steps import (
    PhaseShare,
    StepSummary,
    explain_left_out,
    read_integers,
    select_steps,
    summarize_phases,
    summarize_steps,
    tells_waits,
    train_steps,
)
from profiler_server.analysis.data.stages import find_loader
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.steps.interruptions import find_reasons
from profiler_server.analysis.steps.requests import summarize_requests
from profiler_server.analysis.steps.step_figures import count_micro_batches, measure_throughput, summarize_spread
from profiler_server.analysis.steps.step_graph import average_graph
from profiler_server.derive.derived import NotReady
from profiler_server.diagnosis.end_sentences import (
    AttemptLine,
    describe_end,
    find_job_time,
    list_attempt_lines,
    name_title,
    say_job_time,
)
from profiler_server.diagnosis.limits.steps import NOTED_FRAC
from profiler_server.diagnosis.request_sentences import say_latency
from profiler_server.figures.strips import Strip, build_strip
from profiler_server.format import (
    describe_micro_batches,
    fill_in,
    form_plural,
    format_count,
    format_duration,
    format_number_of,
    format_phase_shares,
    format_share,
    format_steps,
)
from profiler_server.page import WINDOW_REMEDY, Notice, Page, PageRequest, build_part, explain_absence, read_steps
from profiler_server.pages.overall.cards import (
    DataCard,
    OperatorsCard,
    StartCard,
    StepsCard,
    TimelineCard,
    build_operators_card,
    build_steps_card,
    build_timeline_card,
    list_useful_stats,
    read_data_card,
    read_start_card,
)
from profiler_server.pages.overall.facts import (
    Fact,
    describe_between,
    list_facts,
    list_interruption_facts,
    list_trace_facts,
    read_used_devices,
)
from profiler_server.widgets import Part, Stat

T = TypeVar("T")


@dataclass(frozen=True)
class MeanStep:
    """The mean step as a strip of its phases. `sentence` says which steps the mean covers, and in which mode they were
    recorded.

    `beside` is a sentence on the time between epochs, which no step covers; "" if this time is short.
    """

    noun: str
    total: str
    share: str
    strip: Strip
    parts: tuple[Part, ...]
    sentence: str
    beside: str


@dataclass(frozen=True)
class Panel(Generic[T]):
    """The content of one section, or a notice on why the section has no content. The other field is None."""

    body: T | None
    notice: Notice | None


@dataclass(frozen=True)
class OverallPage:
    """The context of `overall.html`. `attempts` are all attempts of the job, empty if the job was started once.
    `job_time` is a sentence on their useful time.

    `step` has a notice if no step was recorded. If one card fails, the other cards are shown. `mean_ns` is the mean
    step of the whole run, which the suggestions start from; None without steps.
    """

    attempts: tuple[tuple[AttemptLine, str], ...]
    job_time: str
    mean_ns: float | None
    stats: Panel[tuple[Stat, ...]]
    step: Panel[MeanStep]
    start_up: StartCard | None
    steps_card: Panel[StepsCard]
    operators_card: Panel[OperatorsCard]
    data_card: Panel[DataCard]
    timeline_card: Panel[TimelineCard]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Steps:
    """The steps of the rank: training steps, or batches if the run only infers. `noun` is the word for one of them."""

    table: pa.Table
    phases: tuple[PhaseShare, ...]
    summary: StepSummary
    noun: str


def build(request: PageRequest) -> OverallPage:
    rank, whole = request.chosen_steps, request.rank_run
    read = build_panel("The steps cannot be read", lambda: _read_steps(rank))

    def from_steps(title: str, make: Callable[[Steps], T | Notice]) -> Panel[T]:
        steps = read.body
        return Panel(None, read.notice) if steps is None else build_panel(title, lambda: make(steps))

    return OverallPage(
        attempts=_list_attempts(request),
        job_time=say_job_time(find_job_time(request.run)),
        mean_ns=_measure_mean(whole, read.body if request.steps is None else None),
        stats=from_steps("Figures", lambda steps: _list_stats(whole, steps)),
        step=from_steps("One step", lambda steps: _describe_step(steps, rank)),
        start_up=read_start_card(whole),
        steps_card=from_steps("The chart of steps cannot be drawn", _draw_steps),
        operators_card=build_panel(
            "The operators cannot be read",
            lambda: explain_absence(rank, "operators", "No operators", WINDOW_REMEDY) or build_operators_card(rank),
        ),
        data_card=build_panel("The data pipeline cannot be read", lambda: _read_data(rank, read.body)),
        timeline_card=build_panel(
            "The timeline cannot be read",
            lambda: explain_absence(whole, "slices", "No timeline", WINDOW_REMEDY) or build_timeline_card(whole),
        ),
        facts=(
            *list_trace_facts(whole),
            *list_facts(request.run.manifest, rank.manifest, len(request.ranks), read_used_devices(whole)),
            *list_interruption_facts(whole),
        ),
    )


def _list_attempts(request: PageRequest) -> tuple[tuple[AttemptLine, str], ...]:
    """Return the attempts of the job, each with the id of its run."""
    return tuple((line, _name_attempt(request, line.path)) for line in list_attempt_lines(request.run))


def _name_attempt(request: PageRequest, path: Path) -> str:
    """Return the id of the run in the folder `path`, which lies above or below the folder of this run."""
    base = request.run.path
    for _ in range(0 if request.run_id == BASE_ID else request.run_id.count("/") + 1):
        base = base.parent
    return name_run(base, path)


def build_panel(title: str, make: Callable[[], T | Notice]) -> Panel[T]:
    return Panel(*build_part(title, make))


def _read_steps(rank: RankRun) -> Steps | Notice:
    rows = read_steps(rank, "No steps yet")
    if not isinstance(rows, Notice):
        return Steps(rows.steps, summarize_phases(rows.steps), summarize_steps(rows.steps), rows.noun)
    end = find_end(Run(rank.run_path, rank.lens.redactor)) if rows.state != "failed" else None
    return rows if end is None else Notice("failed", name_title(end), describe_end(end))


def _measure_mean(rank: RankRun, read: Steps | None) -> float | None:
    """Return the mean of all steps. `read` are these steps if they have been read."""
    with suppress(RunError):
        summary = read.summary if read is not None else summarize_steps(read_step_rows(rank).steps)
        return summary.duration_ns.mean if summary.duration_ns else None
    return None


def _draw_steps(steps: Steps) -> StepsCard | Notice:
    if steps.summary.count < 2:
        return Notice("empty", f"One {steps.noun}", "A single point is no chart.")
    return build_steps_card(steps.table, steps.noun)


def _list_stats(rank: RankRun, steps: Steps) -> tuple[Stat, ...]:
    """Return the figures that are known; a figure that this run cannot have is left out."""
    spread, noun = steps.summary.duration_ns, steps.noun
    if spread is None:
        return ()
    count = f"{format_number_of(steps.summary.count, noun)} recorded"
    around = f"standard deviation {format_duration(spread.std)}; {count}" if spread.std else count
    title = f"Mean {noun}" if steps.summary.count > 1 else f"The only {noun}"
    known = tells_waits(rank.manifest.is_trace, int(read_integers(steps.table, "data_wait_ns").sum()))
    wait = next((phase.share_frac for phase in steps.phases if phase.name == "data_wait"), None)
    figures = (
        Stat(title, format_duration(spread.mean), around, "steps"),
        _describe_requests(rank),
        _describe_rate(measure_throughput(steps.table), noun),
        Stat("Data wait", format_share(wait), f"of the {noun}", "data") if known else None,
        _describe_device(rank),
        _describe_cost(rank.manifest.overhead.training_thread_ns_per_step, spread.mean, noun),
    )
    return (*(figure for figure in figures if figure is not None), *list_useful_stats(rank, steps.table, noun))


def _describe_requests(rank: RankRun) -> Stat | None:
    found = summarize_requests(rank)
    if found is None or found.duration_ns is None:
        return None
    return Stat("Request, p50", format_duration(found.duration_ns.p50), say_latency(found), "steps")


def _describe_rate(rate: float | None, noun: str) -> Stat | None:
    if rate is None:
        return None
    value = format_count(round(rate)) if rate >= 100 else f"{rate:.1f}"
    return Stat("Throughput", f"{value} /s", f"samples per second inside of {form_plural(noun)}")


def _describe_device(rank: RankRun) -> Stat | None:
    if rank.status("job_operations").state == "there":
        return None  # its trace does not name the device
    if not rank.manifest.devices and rank.status("kernels").state != "there":
        return None
    try:
        summary = summarize_device.peek(rank)
    except RunError:
        return None
    if isinstance(summary, NotReady):
        return Stat("Device busy", "…", "is being computed", pending=True) if summary.pending else None
    if summary is None or summary.utilization_frac is None:
        return None
    return Stat(
        "Device busy",
        format_share(summary.utilization_frac),
        fill_in("of the detailed {nouns} runs a kernel"),
        "device",
    )


def _describe_cost(cost_ns: float | None, mean_ns: float, noun: str) -> Stat | None:
    if cost_ns is None:
        return None
    share = f", {format_share(cost_ns / mean_ns)} of the mean {noun}" if mean_ns else ""
    return Stat("Recording cost", format_duration(cost_ns), f"a {noun} on the recorded thread{share}")


def _describe_step(steps: Steps, rank: RankRun) -> MeanStep:
    graph = average_graph(steps.phases)
    present = [phase for phase in steps.phases if phase.mean_ns > 0]
    shares = format_phase_shares({phase.name: phase.share_frac for phase in present})
    carriers = {row.name: row.carrier for row in summarize_spread(steps.table)}
    parts = tuple(
        Part(
            PHASE_LABELS[phase.name],
            PHASE_COLORS[phase.name],
            format_duration(phase.mean_ns),
            shares[phase.name],
            phase.share_frac,
            carrier=carriers.get(phase.name) if phase.share_frac >= NOTED_FRAC else None,
        )
        for phase in present
    )
    return MeanStep(
        noun=steps.noun,
        total=format_duration(graph.duration_ns),
        share=format_share(sum(phase.share_frac for phase in present)),
        strip=build_strip([(s.phase, s.start_ns, s.duration_ns) for s in graph.stretches], graph.duration_ns),
        parts=parts,
        sentence=_describe_modes(steps, rank.manifest),
        beside=describe_between(rank, steps.noun),
    )


_MOST_TRIGGERS = 5


def _describe_modes(steps: Steps, manifest: RankManifest) -> str:
    selection = select_steps(steps.table)
    kept, noun = int(selection.kept.sum()), steps.noun
    of = f"{format_count(kept)} of " if kept < steps.summary.count else ""
    micro = describe_micro_batches(count_micro_batches(steps.table), noun)
    left_out = explain_left_out(selection.left_out, noun)
    covered = f"{of}{format_number_of(steps.summary.count, noun)}{f' ({left_out})' if left_out else ''}"
    text = f"{micro} {f'Mean over {covered}' if steps.summary.count > 1 else f'The only {noun}'}".strip()
    if selection.detailed[selection.kept].any():
        return f"{text}, recorded in a detailed window."
    text = f"{text}, recorded in light mode"
    windows = selection.step[read_integers(train_steps(steps.table), "detailed") > 0].tolist()
    if not windows:
        return f"{text}."
    text = f"{text}; operators and timeline come from the detailed {form_plural(noun)} {format_steps(windows)}."
    for window, reason in find_reasons(manifest)[:_MOST_TRIGGERS]:
        why = f": {reason}" if reason else ""
        text += f" The window at {noun} {format_count(window.first_step)} opened by itself{why}."
    return text


def _read_data(rank: RankRun, steps: Steps | None) -> DataCard | Notice:
    if steps is None:
        return read_data_card(rank, find_loader(rank), None)
    wait = next(phase.share_frac for phase in steps.phases if phase.name == "data_wait")
    return read_data_card(rank, find_loader(rank), wait, steps.table, steps.noun)


PAGE = Page(slug="", title="Overall", order=10, key="o", template="overall.html", build=build, follows_steps=True)
