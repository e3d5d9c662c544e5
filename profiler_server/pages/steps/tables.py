"""Texts and tables beside the step-trace graph: averaged steps, percentiles, outliers, evaluation, the calls that bound
forward and backward, detailed windows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from collector.format.phases import PHASE_LABELS
from collector.format.run import RankRun, Run
from collector.format.schema.control import WindowRequest, read_control
from collector.format.schema.layout import control_file
from collector.format.schema.manifest import RankManifest
from collector.format.steps import (
    Distribution,
    EvaluationSummary,
    Reason,
    explain_left_out,
    read_integers,
    train_steps,
)
from profiler_server.analysis.steps.outliers import (
    Outlier,
    explain_outlier,
    list_outliers,
)
from profiler_server.analysis.steps.requests import summarize_other_calls, summarize_requests
from profiler_server.analysis.steps.step_figures import summarize_stability
from profiler_server.analysis.steps.step_graph import DevicePhases
from profiler_server.diagnosis.limits.steps import BULK_RATIO, DEVIATIONS, EXCESS_FRAC, LEAST_USUAL
from profiler_server.diagnosis.request_sentences import describe_requests
from profiler_server.facts.steps import NOTHING, Interruptions
from profiler_server.format import (
    ABSENT,
    fill_in,
    form_plural,
    format_change,
    format_count,
    format_duration,
    format_number_of,
    format_phase_shares,
    format_runs,
    format_share,
    shorten_middle,
)
from profiler_server.pages.steps.charts import StepData
from profiler_server.widgets import Stat


@dataclass(frozen=True)
class WindowControl:
    """The form that requests a detailed window. `sentence` is on the last request, or says why no window is possible.

    `can_order` is False if detailed windows are off. `is_awaited` is True until the requested window is recorded.
    """

    sentence: str
    can_order: bool
    is_awaited: bool = False


def view_window_control(run: Run, rank: RankRun) -> WindowControl | None:
    if rank.state != "recording":
        return None
    signal = next((entry for entry in rank.manifest.signals if entry.name == "window"), None)
    if signal is not None and signal.state in ("off", "failed"):
        return WindowControl(f"This run takes no detailed windows: {signal.reason}", False)
    path = control_file(run.path)
    try:
        asked = read_control(run.path)
        asked_unix_ns = os.stat(path).st_mtime_ns
    except FileNotFoundError:
        hint = f"A detailed window shows every operator of a few steps. Editing {path} does the same as this form."
        return WindowControl(hint, True)
    except (OSError, ValueError) as error:
        return WindowControl(f"{path} cannot be read: {error}.", True)
    return _describe(asked, asked_unix_ns - run.manifest.epoch_unix_ns, rank)


def _describe(asked: WindowRequest, asked_ns: int, rank: RankRun) -> WindowControl:
    taken = [window for window in rank.manifest.windows if window.trigger == "control"]
    wish = f"Asked for last: {_name_steps(asked)}."
    if not taken or taken[-1].start_ns < asked_ns:
        return WindowControl(f"{wish} This page shows the window as soon as it is taken.", True, is_awaited=True)
    last = taken[-1]
    got = WindowRequest(last.first_step, last.last_step - last.first_step + 1)
    return WindowControl(f"{wish} Taken last: {_name_steps(got)}.", True)


def _name_steps(request: WindowRequest) -> str:
    if request.first == 0:
        number = "" if request.count == 1 else f"{format_count(request.count)} "
        return f"the next {number}{form_plural('step') if number else 'step'}"
    if request.count == 1:
        return f"step {format_count(request.first)}"
    return f"steps {format_count(request.first)} to {format_count(request.last)}"


_REASONS: dict[Reason, str] = {
    "warm-up": ": warm-up, the first {nouns} are still slower than the typical one.",
    "standstill": ": the job stood still during them.",
    "detailed windows": ". The detailed window, or the reading of it, made them longer.",
}
OUTLIER_ROWS = 20
INTERRUPTION_ROWS = 10
WINDOW_ROWS = 20


@dataclass(frozen=True)
class Coverage:
    """A sentence on the steps that the average covers. `left_out` has each group of steps left out, with the reason."""

    sentence: str
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class OutlierTable:
    """A table of outliers. `sentence` gives the limit above which a step is an outlier, `rows` each with its cause."""

    sentence: str
    rows: tuple[tuple[Outlier, str], ...]


@dataclass(frozen=True)
class EvaluationView:
    """The evaluation batches between training steps: a sentence, figures of their length, and their mean phases."""

    sentence: str
    figures: tuple[Stat, ...]
    phases: tuple[Stat, ...]


@dataclass(frozen=True)
class Points:
    """The calls at which the forward begins and the backward ends, how these calls were found (`source`), and the
    command that sets other calls (`override`, "" for an imported run).
    """

    forward_start: str
    backward_end: str
    source: str
    override: str


def describe_coverage(data: StepData) -> Coverage:
    selection, noun = data.selection, data.noun
    kept = selection.step[selection.kept]
    total = len(selection.step)
    if len(kept) == total:
        which = f"all {format_number_of(total, noun)}" if total > 1 else f"the only {noun}"
        return Coverage(f"The average covers {which}.", ())
    text = f"The average covers {format_count(len(kept))} of {format_number_of(total, noun)}: {format_runs(_find_runs(kept))}."
    left_out = tuple(
        f"{noun if len(group.steps) == 1 else form_plural(noun)} {format_runs(_find_runs(group.steps))} ({format_count(len(group.steps))})"
        f"{fill_in(_REASONS[group.reason])}"
        for group in selection.left_out
    )
    return Coverage(f"{text} {explain_left_out(selection.left_out, noun)}.", left_out)


def _find_runs(numbers: Ints) -> list[tuple[int, int]]:
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    first, last = numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, len(numbers) - 1)]
    return list(zip(first.tolist(), last.tolist(), strict=True))


_SHOWN = ("mean", "p50", "p95", "max")
"""The figures of step times that are always shown; the others are folded."""


def list_percentiles(duration: Distribution | None) -> tuple[tuple[Stat, ...], tuple[Stat, ...]]:
    """Return the distribution of step times as named figures: those that are always shown, and the others. Both are
    empty if `duration` is None.
    """
    if duration is None:
        return (), ()
    ends = (("min", float(duration.min)), ("max", float(duration.max)))
    if duration.count == 1:
        return (Stat("length", format_duration(duration.mean)),), ()
    named = (("mean", duration.mean), *duration.list_percentiles(), *ends)
    stats = [Stat(label, format_duration(value)) for label, value in named if value is not None]
    shown, more = ([stat for stat in stats if (stat.label in _SHOWN) == wanted] for wanted in (True, False))
    return tuple(shown), tuple(more)


def explain_spread(duration: Distribution | None, data: StepData) -> str:
    if duration is None:
        return ""
    if duration.count == 1:
        return f"One {data.noun} has no spread."
    unranked = duration.explain_unranked(data.noun) or "Percentiles are interpolated linearly."
    return f"Over the {data.nouns} that the average covers. {unranked}"


def list_steadiness(data: StepData) -> tuple[Stat, ...]:
    stability = summarize_stability(data.steps)
    figures = []
    if stability.jitter_frac is not None:
        note = f"standard deviation / mean {data.noun}"
        figures.append(Stat("jitter", format_share(stability.jitter_frac), note))
    if stability.trend_frac is not None:
        note = (
            f"mean of the last quarter of the {data.nouns} against the first quarter, both without their extreme tenths"
        )
        figures.append(Stat("trend", format_change(stability.trend_frac), note))
    return tuple(figures)


def describe_outliers(data: StepData, interruptions: Interruptions = NOTHING) -> OutlierTable:
    outliers, noun = list_outliers(data.steps, OUTLIER_ROWS, interruptions), data.noun
    if outliers.limit_ns is None:
        return OutlierTable(f"Outliers are looked for from {LEAST_USUAL} {data.nouns} on.", ())
    limit = format_duration(outliers.limit_ns)
    rule = (
        f"A {noun} is an outlier above {limit}. It is then more than {100 * EXCESS_FRAC:.0f} % and "
        f"{DEVIATIONS:.0f} standard deviations (estimated as 1.4826 × the median absolute deviation) above the median."
    )
    if outliers.by_bulk:
        rule = f"A {noun} is an outlier above {limit}. This is {BULK_RATIO:.0f} × the 90th percentile."
    if not outliers.count:
        return OutlierTable(f"There are none. {rule}", ())
    listed = (
        f" The {len(outliers.shown)} slowest are listed, slowest first." if outliers.count > len(outliers.shown) else ""
    )
    rows = tuple((outlier, explain_outlier(outlier)) for outlier in outliers.shown)
    return OutlierTable(f"{format_number_of(outliers.count, 'outlier')}. {rule}{listed}", rows)


def describe_device_phases(found: DevicePhases | None) -> str:
    if found is None:
        return ""
    parts = ", ".join(f"{PHASE_LABELS[name].lower()} {format_duration(mean)}" for name, mean in found.means_ns)
    return f"On the device, by events on its stream, mean of {format_number_of(found.steps, 'step')}: {parts}."


def describe_collectives(data: StepData, step: int | None) -> str:
    """Return a sentence on the time of all collectives in a step, exposed and overlapped; "" if it is not known.

    It is the time in the step `step`. If `step` is None, it is the mean over the averaged steps whose time is known.
    """
    train = train_steps(data.steps)
    whole, exposed = read_integers(train, "communication_total_ns", -1), read_integers(train, "communication_ns")
    wanted = data.selection.kept if step is None else data.selection.step == step
    known = wanted & (whole >= exposed)
    total_ns, exposed_ns = (float(values[known].mean()) if known.any() else 0.0 for values in (whole, exposed))
    if not total_ns:
        return ""
    hidden_ns = total_ns - exposed_ns
    over = "" if known.sum() == wanted.sum() else f", mean of {format_number_of(int(known.sum()), data.noun)}"
    return (
        f"Collectives take {format_duration(total_ns)}{over}: {format_duration(exposed_ns)} exposed, "
        f"{format_duration(hidden_ns)} ({format_share(hidden_ns / total_ns)}) overlapped with other work."
    )


def describe_evaluation(summary: EvaluationSummary | None) -> EvaluationView | None:
    if summary is None:
        return None
    spread = summary.duration_ns
    text = (
        f"{format_number_of(summary.count, 'evaluation batch')} took {format_duration(summary.total_ns)}, "
        f"{format_share(summary.share_frac)} of the recorded time. The figures above leave them out."
    )
    ranked = (("p50", spread.p50), ("p95", spread.p95), ("max", spread.max)) if spread.count > 1 else ()
    named = (("mean" if ranked else "length", spread.mean), *ranked)
    present = [phase for phase in summary.phases if phase.mean_ns]
    shares = format_phase_shares({phase.name: phase.share_frac for phase in present})
    phases = (Stat(PHASE_LABELS[phase.name], format_duration(phase.mean_ns), shares[phase.name]) for phase in present)
    figures = tuple(Stat(label, format_duration(value)) for label, value in named if value is not None)
    return EvaluationView(text, figures, tuple(phases))


def describe_points(manifest: RankManifest) -> Points:
    source = {
        None: "not recorded",
        "automatic": "found automatically: the outermost module that is called, and the autograd engine",
    }.get(manifest.point_source, f"set by {shorten_middle(manifest.point_source or '', 80)}")
    return Points(
        forward_start=manifest.forward_start or ABSENT,
        backward_end=manifest.backward_end or ABSENT,
        source=source,
        override="" if manifest.state == "imported" else "FP_POINT=MyModel BP_POINT=MyFirstLayer python train.py",
    )


_LATENCIES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True)
class RequestsView:
    """The latencies of requests and of the calls inside of them. `elsewhere` is a sentence on calls on other threads
    outside of requests, "" if there were none; without a request, `figures` is empty.
    """

    sentence: str
    figures: tuple[Stat, ...]
    calls: tuple[Stat, ...]
    elsewhere: str


def view_requests(rank: RankRun) -> RequestsView | None:
    found, others = summarize_requests(rank), summarize_other_calls(rank)
    if found is None and others is None:
        return None
    elsewhere = ""
    if others is not None and others.duration_ns is not None:
        elsewhere = (
            f"{format_number_of(others.count, 'call')} of models ran on other threads than the recorded one, half of them "
            f"in at most {format_duration(others.duration_ns.p50)}. The figures below leave them out."
        )
    if found is None:
        return RequestsView("", (), (), elsewhere)
    rate = Stat("throughput", f"{found.per_s:.4g} a second", "from the first start to the last end")
    per = Stat("calls a request", f"{found.calls_mean:.3g}", f"at most {found.calls_max:,}")
    return RequestsView(
        describe_requests(found),
        (Stat("requests", f"{found.count:,}"), *_list_latencies(found.duration_ns), rate),
        (per, *_list_latencies(found.call_ns)) if found.calls_max else (),
        elsewhere,
    )


def _list_latencies(times: Distribution | None) -> tuple[Stat, ...]:
    if times is None:
        return ()
    named = [("mean", times.mean), *((name, getattr(times, name)) for name in _LATENCIES), ("max", float(times.max))]
    return tuple(Stat(name, format_duration(value)) for name, value in named if value is not None)
