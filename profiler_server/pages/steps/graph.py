"""The step-trace graph: the phases of one step or of the mean step, as rows with start, length and spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collector.format.phases import PHASE_COLORS, Phase, list_phases
from profiler_server.analysis.steps.step_figures import PhaseSpread
from profiler_server.analysis.steps.step_graph import CollectiveStretch, StepGraph
from profiler_server.diagnosis.limits.steps import NOTED_FRAC
from profiler_server.figures.strips import Bar, Strip, build_lane, build_strip
from profiler_server.format import fill_in, format_duration, format_phase_shares, format_share, shorten_middle

MOST_STREAMS = 12
"""Most rows of collectives; a run has few process groups, so more rows would be noise."""

NOTHING = "–"


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the graph. `present` is False if the phase did not occur in the shown step. `p50` and `p95` are over
    all averaged steps, `–` if these are too few.

    `carrier` is the step that holds most of the phase's mean, None if no single step does. `span_ns` is begin and end
    of the phase in ns since the run's epoch. It is None for the average, or if only the length of the phase is known.
    """

    label: str
    meaning: str
    color: str
    bars: tuple[Bar, ...]
    start: str
    duration: str
    share: str
    p50: str
    p95: str
    present: bool
    carrier: int | None
    span_ns: tuple[int, int] | None = None


@dataclass(frozen=True)
class StreamRow:
    """The collectives of one process group in the shown step. `text` has their number, first name and total time."""

    label: str
    bars: tuple[Bar, ...]
    text: str


@dataclass(frozen=True)
class GraphView:
    """The graph. `note` explains the order of the bars. `total` and `share` are the last line of its table."""

    title: str
    strip: Strip
    rows: tuple[PhaseRow, ...]
    streams: tuple[StreamRow, ...]
    total: str
    share: str
    note: str


def view_graph(graph: StepGraph, spread: Sequence[PhaseSpread], title: str, noun: str = "step") -> GraphView:
    whole = graph.duration_ns
    stretches = [(s.phase, s.start_ns, s.duration_ns) for s in graph.stretches]
    by_name = {row.name: row for row in spread}
    phases = {phase.name: phase for phase in list_phases(noun, {phase for phase, _, _ in stretches})}
    lanes: dict[str, list[tuple[str, float, float]]] = {name: [] for name in phases}
    for stretch in stretches:
        lanes[stretch[0]].append(stretch)
    lengths = [sum(duration for _, _, duration in lane) for lane in lanes.values()]
    fractions = (length / whole if whole else 0.0 for length in lengths)
    shares = format_phase_shares(dict(zip(lanes, fractions, strict=True)))
    rows = tuple(
        replace(
            _view_phase(lane, by_name.get(name), build_lane(lane, whole), (phases[name], shares[name])),
            span_ns=_find_span(graph, lane),
        )
        for name, lane in lanes.items()
    )
    return GraphView(
        title=title,
        strip=build_strip(stretches, whole),
        rows=rows,
        streams=_view_streams(graph.collectives, whole),
        total=format_duration(whole),
        share=format_share(sum(lengths) / whole if whole else 0.0),
        note=fill_in(_explain_order(graph)),
    )


def _view_phase(
    lane: Sequence[tuple[str, float, float]], known: PhaseSpread | None, bars: tuple[Bar, ...], words: tuple[Phase, str]
) -> PhaseRow:
    phase, share = words
    return PhaseRow(
        label=phase.label,
        meaning=phase.meaning,
        color=PHASE_COLORS[phase.name],
        bars=bars,
        start=format_duration(lane[0][1]) if lane else NOTHING,
        duration=format_duration(sum(length for _, _, length in lane)) if lane else NOTHING,
        share=share if lane else NOTHING,
        p50=format_duration(known.p50_ns) if known and known.mean_ns and known.steps > 1 else NOTHING,
        p95=format_duration(known.p95_ns) if known and known.mean_ns and known.p95_ns is not None else NOTHING,
        present=bool(lane),
        carrier=known.carrier if known and known.share_frac >= NOTED_FRAC else None,
    )


def _find_span(graph: StepGraph, lane: Sequence[tuple[str, float, float]]) -> tuple[int, int] | None:
    if graph.start_ns is None or not graph.measured or not lane:
        return None
    return graph.start_ns + int(lane[0][1]), graph.start_ns + int(lane[-1][1] + lane[-1][2])


def _view_streams(collectives: Sequence[CollectiveStretch], whole: float) -> tuple[StreamRow, ...]:
    rows: dict[str, list[CollectiveStretch]] = {}
    for stretch in collectives:
        rows.setdefault(stretch.row, []).append(stretch)
    return tuple(_view_stream(name, group, whole) for name, group in list(rows.items())[:MOST_STREAMS])


def _view_stream(name: str, group: Sequence[CollectiveStretch], whole: float) -> StreamRow:
    total = sum(stretch.duration_ns for stretch in group)
    bars = [build_lane([(s.name, s.start_ns, s.duration_ns)], whole) for s in group]
    text = f"{len(group)} × {shorten_middle(group[0].name, 30)}, {format_duration(total)}"
    return StreamRow(shorten_middle(name, 30), tuple(bar for lane in bars for bar in lane), text)


def _explain_order(graph: StepGraph) -> str:
    if graph.measured:
        text = "The bars show when each phase ran on the recorded thread."
        first = {stretch.phase: stretch.start_ns for stretch in reversed(graph.stretches)}
        if first.get("optimizer", 0.0) >= first.get("backward", 0.0):
            return text
        return f"{text} The parameter update before the backward is zero_grad, which counts as parameter update."
    laid_out = "The bars are drawn in the usual order of the phases"
    if graph.step is None:
        return f"{laid_out}: an average has lengths, but no start times."
    return laid_out + (
        ": of this {noun} only the length of each phase was recorded. Start times are recorded for the first {nouns} and "
        "in detailed windows."
    )
