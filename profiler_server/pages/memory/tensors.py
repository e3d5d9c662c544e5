"""Device memory in the detailed windows: allocated bytes over time, change by operator, blocks alive at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.run import RankRun
from collector.format.schema.manifest import RankManifest
from profiler_server.analysis.memory.memory import (
    HOST,
    LiveMemory,
    MemoryTrace,
    OperatorChange,
    find_row,
    list_live,
    read_memory,
    sum_operators,
)
from profiler_server.analysis.memory.resources import read_scale
from profiler_server.figures.charts import Axes, Chart, Line, build_lines
from profiler_server.format import (
    fill_in,
    format_bytes,
    format_duration,
    format_number_of,
    format_runs,
    shorten_middle,
)
from profiler_server.widgets import Link, Stat

MOST_OPERATORS = 25
MOST_BLOCKS = 50
TABLE_ROWS = 40
MS = 1e6


@dataclass(frozen=True)
class MomentView:
    """The memory blocks alive at one moment. `is_peak` means that no moment was chosen, and the peak is shown.

    `t0` and `t1` bound the range of the timeline that a link opens around this moment, in ns since the run's epoch.
    """

    title: str
    sentence: str
    is_peak: bool
    live: LiveMemory
    t0: int
    t1: int


@dataclass(frozen=True)
class TensorView:
    """The memory of tensors on one device. `origin_ns` is the zero of the chart's axis, in ns since the run's epoch."""

    devices: tuple[Link, ...]
    stats: tuple[Stat, ...]
    chart: Chart
    origin_ns: int
    moment: MomentView
    operators: tuple[OperatorChange, ...]
    taken_bytes: int
    operator_note: str
    error: str


def view_tensors(rank: RankRun, query: Mapping[str, str]) -> TensorView:
    """Return the memory of the device in `?device=`, by default of the first device. Raises as `RankRun.table` does."""
    traces = read_memory(rank)
    trace, device_error = _choose(traces, query.get("device", ""))
    row, moment_error = _choose_row(trace, query.get("at_ns", ""))
    origin = int(trace.start_ns[0])
    changes = sum_operators(trace)
    live = list_live(trace, row, rank.manifest.windows, MOST_BLOCKS)
    return TensorView(
        devices=tuple(Link(_name(t.device), {"device": str(t.device)}, t is trace) for t in traces)
        if len(traces) > 1
        else (),
        stats=_list_stats(rank.manifest, trace),
        chart=_draw(rank, trace, row),
        origin_ns=origin,
        moment=_view_moment(
            live, _find_window(rank, live.at_ns, origin), row == trace.peak_row and not query.get("at_ns")
        ),
        operators=tuple(changes[:MOST_OPERATORS]),
        taken_bytes=sum(change.allocated_bytes for change in changes),
        operator_note=_say_left_out(changes),
        error=" ".join(filter(None, (device_error, moment_error))),
    )


def _choose(traces: Sequence[MemoryTrace], text: str) -> tuple[MemoryTrace, str]:
    chosen = next((trace for trace in traces if str(trace.device) == text), None)
    if chosen is not None or not text:
        return chosen or traces[0], ""
    return traces[0], f"There is no memory of a device “{text[:20]}”; {_name(traces[0].device)} is shown."


def _choose_row(trace: MemoryTrace, text: str) -> tuple[int, str]:
    if not text:
        return trace.peak_row, ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        return trace.peak_row, f"“{text[:20]}” is no moment of this run; the peak is shown."
    return find_row(trace, int(text)), ""


def _name(device: int) -> str:
    return "Host memory" if device == HOST else f"GPU {device}"


def _list_stats(manifest: RankManifest, trace: MemoryTrace) -> tuple[Stat, ...]:
    meaning = "held by tensors" if trace.has_addresses else "above the lowest level: the trace records no total"
    stats = [Stat("Peak allocated", format_bytes(trace.peak_bytes), meaning)]
    if trace.peak_reserved_bytes is not None:
        stats.append(Stat("Peak reserved", format_bytes(trace.peak_reserved_bytes), "held by the caching allocator"))
    capacity = next(
        (d.memory_bytes for d in manifest.devices if d.index == trace.device and trace.device != HOST), None
    )
    if capacity:
        stats.append(Stat("Capacity", format_bytes(capacity), "of the device"))
    taken = trace.change_bytes[trace.change_bytes > 0]
    churn = format_number_of(len(taken), "allocation")
    stats.append(Stat("Allocated in all", format_bytes(float(taken.sum())), f"by {churn}"))
    stats.append(Stat("Largest block", format_bytes(float(taken.max(initial=0))), "taken at once"))
    return tuple(stats)


def _draw(rank: RankRun, trace: MemoryTrace, row: int) -> Chart:
    origin = int(trace.start_ns[0])
    x = (trace.start_ns - origin) / MS
    name = _name(trace.device)
    lines = [Line("allocated", "compute", trace.allocated_bytes.astype(np.float64), "steps")]
    if trace.peak_reserved_bytes is not None:
        reserved = np.where(trace.reserved_bytes > 0, trace.reserved_bytes, np.nan)
        lines.append(Line("reserved", "overlap", reserved))
    lines.append(Line("shown below", "worse", trace.allocated_bytes[[row]].astype(np.float64), "points", x=x[[row]]))
    axes = Axes(
        x_title=f"ms since the first {'detailed window opened' if rank.manifest.windows else 'allocation of the trace'}",
        y_title="memory",
        unit="bytes",
        shaded=_find_other_steps(rank, trace),
    )
    figure = build_lines(x, lines, axes)
    figure["layout"]["hovermode"] = "closest"
    for drawn in figure["data"]:
        drawn["hovertemplate"] = drawn["hovertemplate"].replace("%{x:,.0f}", "%{x:,.3f} ms")
    since = " since the window opened" if trace.device == HOST else ""
    return Chart(
        id="memory",
        title=f"{name}: allocated over time",
        caption=f"What tensors held after every allocation and release{since}; every other {fill_in('{noun}')} is shaded. "
        "Click a point to see below what was alive.",
        figure=figure,
        columns=("Time", "Allocated", "Operator"),
        rows=_tabulate(trace, origin),
    )


def _find_other_steps(rank: RankRun, trace: MemoryTrace) -> list[tuple[float, float]]:
    """Return begin and end of every step with an odd number, in ms on the chart's x axis, for shading."""
    scale = read_scale(rank)
    first, last = int(trace.start_ns[0]), int(trace.start_ns[-1])
    inside = (scale.end_ns > first) & (scale.start_ns < last) & (scale.number % 2 == 1)
    starts, ends = np.maximum(scale.start_ns[inside], first), np.minimum(scale.end_ns[inside], last)
    return [((a - first) / MS, (b - first) / MS) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _tabulate(trace: MemoryTrace, origin: int) -> tuple[tuple[str, ...], ...]:
    order = np.argsort(-np.abs(trace.change_bytes), kind="stable")[:TABLE_ROWS]
    return tuple(
        (
            format_duration(int(trace.start_ns[row]) - origin),
            format_bytes(int(trace.allocated_bytes[row])),
            shorten_middle(trace.name(row), 40),
        )
        for row in sorted(order.tolist())
    )


def _find_window(rank: RankRun, at_ns: int, origin: int) -> str:
    """Return text on where in its detailed window a moment lies: "12.0 ms into the window of steps 10–12"."""
    begun = [window for window in rank.manifest.windows if window.start_ns <= at_ns]
    if not begun:
        return f"{format_duration(at_ns - origin)} after the first event"
    window = max(begun, key=lambda window: window.start_ns)
    steps = format_runs([(window.first_step, window.last_step)])
    noun = fill_in("{noun}" if window.first_step == window.last_step else "{nouns}")
    return f"{format_duration(at_ns - window.start_ns)} into the window of {noun} {steps}"


def _view_moment(live: LiveMemory, when: str, is_peak: bool) -> MomentView:
    step = f", {fill_in('{noun}')} {live.step:,}" if live.step is not None else ""
    reserved = f" of {format_bytes(live.reserved_bytes)} reserved" if live.reserved_bytes else ""
    was = "was" if live.count == 1 else "were"
    text = f"{format_bytes(live.allocated_bytes)} were allocated{reserved}. {format_number_of(live.count, 'block')} of that {was} taken in this window"
    if not live.has_addresses:
        text = (
            f"{format_bytes(live.allocated_bytes)} more were allocated than at the lowest level of the trace. It records "
            "neither totals nor addresses, so what was held from before, and which blocks were alive, is not known; "
            "PyTorch 1.11 and later record both"
        )
    if live.before_bytes:
        text += f" ({format_bytes(live.known_bytes)}). {format_bytes(live.before_bytes)} were held from before, such as parameters"
    shown = len(live.blocks)
    text += f". The {shown} largest are listed." if live.count > shown else "."
    frame = 2_000_000
    title = f"Alive at the peak: {when}{step}" if is_peak else f"Alive {when}{step}"
    return MomentView(title, text, is_peak, live, max(live.at_ns - frame, 0), live.at_ns + frame)


def _say_left_out(changes: Sequence[OperatorChange]) -> str:
    left = len(changes) - MOST_OPERATORS
    return (
        f"{format_number_of(left, 'operator')} that took less {'is' if left == 1 else 'are'} left out."
        if left > 0
        else ""
    )
