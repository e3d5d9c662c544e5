"""The tab Step interval: queue depths when a step requests a batch, the waits for batches, and sentences on both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.steps import explain_left_out
from profiler_server.analysis.data.queues import DEVICE_QUEUE, QueueKey, trace_by_step, trace_over_time
from profiler_server.diagnosis.limits.loading import EMPTY_QUEUE_FRAC
from profiler_server.diagnosis.readings import Reading, judge_wait, read_bottleneck
from profiler_server.facts.pipeline import QueueSummary
from profiler_server.figures.charts import Axes, Chart, Line, Stack, build_depths, build_lines, build_stack
from profiler_server.format import (
    ABSENT,
    form_plural,
    format_count,
    format_duration,
    format_number_of,
    format_share,
    format_steps,
)
from profiler_server.pages.data.facts import PipelineFacts, label_queue
from profiler_server.widgets import Stat


def chart_depths(samples: pa.Table, key: QueueKey, chart_id: str) -> Chart:
    trace = trace_over_time(samples, key)
    seconds = trace.starts_ns / 1e9
    empty = trace.depths == 0
    lines = [Line("depth", "data", trace.depths, "steps")]
    if trace.capacity:
        ends = np.array([seconds[0], seconds[-1]])
        lines.append(Line("capacity", "idle", np.array([trace.capacity, trace.capacity]), "dash", x=ends))
    lines.append(Line("empty", "worse", np.zeros(int(empty.sum())), "points", x=seconds[empty]))
    if trace.blocked.any():
        held = trace.depths[trace.blocked]
        lines.append(Line("next one not ready", "communication", held, "points", x=seconds[trace.blocked]))
    is_own = key.loader is None
    asked = "an item was asked for" if is_own else "the recorded thread asked for a batch"
    rows = list(zip(seconds, trace.steps, trace.depths, strict=True))[:ROW_LIMIT]
    return Chart(
        id=chart_id,
        title=f"{label_queue(key)}: depth over time",
        caption=f"The depth at each of {format_number_of(len(seconds), 'request')}, when {asked}; "
        f"{format_count(int(empty.sum()))} found the queue empty.",
        figure=build_lines(
            seconds, lines, Axes("time since the run's start (s)", "depth", "items" if is_own else "batches")
        ),
        columns=("Time (s)", "Step", "Depth"),
        rows=tuple((f"{at:.3f}", str(step), str(depth)) for at, step, depth in rows),
    )


ROW_LIMIT = 200
UNKNOWN_WAITS = (
    "The trace has no call of a DataLoader, so the time that a {noun} waits for its input counts as another phase. "
    "Record the run with Stepscope to see it."
)


@dataclass(frozen=True)
class QueueInterval:
    """One queue by step. `role` says which stages the queue connects, `empty` how many requests found the queue empty.
    `empty_frac` is the share of these requests, and `is_starved` means that this share is above the limit.

    `query` is the URL query that opens the chart of the depth over time."""

    title: str
    role: str
    empty: str
    empty_frac: float
    is_starved: bool
    facts: tuple[Stat, ...]
    chart: Chart
    query: Mapping[str, str]


@dataclass(frozen=True)
class IntervalView:
    """The content of the tab. `no_queue` says why there is no queue, "" if there is one. `waits` may be None."""

    verdict: Reading
    figures: tuple[Stat, ...]
    readings: tuple[Reading, ...]
    waits: Chart | None
    queues: tuple[QueueInterval, ...]
    no_queue: str
    coverage: str


def build_interval(facts: PipelineFacts, with_pipeline: bool = True) -> IntervalView:
    """Return the content of the tab. If `with_pipeline` is False, it has the waits of the steps, but no text on queues.

    Raises as `RankRun.table` does.
    """
    verdict = _judge(facts)
    # The page begins with a verdict on the user's own stages. A reason in this verdict is not repeated.
    readings = facts.readings if with_pipeline and len(facts.waits.steps) else ()
    return IntervalView(
        verdict=verdict,
        figures=_list_figures(facts),
        readings=tuple(reading for reading in readings if reading.text not in verdict.text),
        waits=_chart_waits(facts),
        queues=tuple(_build_queue(facts, key, summary) for key, summary in facts.queues.items()),
        no_queue="" if facts.queues or not with_pipeline else _explain_no_queue(facts),
        coverage=_describe_coverage(facts),
    )


def _judge(facts: PipelineFacts) -> Reading:
    waits = facts.waits
    if waits.is_of_others:
        text = "Evaluation does, or code between the steps; the waits of the steps are those of the other DataLoaders."
        return Reading("plain", f"No {facts.noun} takes its data from this DataLoader", text)
    if not len(waits.steps) and facts.own_bottleneck is not None:
        return read_bottleneck(facts.own_bottleneck)
    if len(waits.steps) and not facts.tells_waits:
        return Reading("plain", "The waits for data are not known", UNKNOWN_WAITS.format(noun=facts.noun))
    source = "this DataLoader" if waits.is_one_of_several else "data"
    return judge_wait(waits.wait_frac, bool(len(waits.steps)), facts.noun, facts.bottleneck, source)


def _explain_no_queue(facts: PipelineFacts) -> str:
    if facts.own_stages:
        return "Your own stages use no queue that is watched: wrap it with stepscope.queue(name, q)."
    if facts.loader is None:
        return "No DataLoader was used, so there is no queue: the data comes from the script itself."
    if facts.loader.watched:
        return "The input is an iterable and no DataLoader. A queue inside of it is not seen."
    if facts.loader.num_workers == 0:
        return (
            "num_workers=0: there are no worker processes and so no queue. "
            "The main process makes each batch itself, and computes nothing meanwhile."
        )
    return "No queue depth was sampled for this DataLoader."


def _list_figures(facts: PipelineFacts) -> tuple[Stat, ...]:
    waits = facts.waits
    if not len(waits.steps):
        return ()
    step = Stat(f"Mean {facts.noun}", format_duration(waits.mean_ns(waits.duration_ns)), "start to start")
    known = facts.tells_waits
    wait = Stat(
        "Wait for batch",
        format_duration(waits.mean_ns(waits.data_wait_ns)) if known else ABSENT,
        f"{format_share(waits.wait_frac)} of the {facts.noun}" if known else "the trace has no call of a DataLoader",
    )
    h2d = Stat(
        "Host-to-device",
        format_duration(waits.mean_ns(waits.h2d_ns)),
        f"{format_share(waits.h2d_frac)} of the {facts.noun}",
    )
    return (step, wait, h2d)


def _build_queue(facts: PipelineFacts, key: QueueKey, summary: QueueSummary) -> QueueInterval:
    is_own, number = key.loader is None, list(facts.queues).index(key)
    return QueueInterval(
        title=label_queue(key),
        role=_describe_role(facts, key),
        empty=_count_empty(summary),
        empty_frac=summary.empty_frac,
        is_starved=summary.empty_frac > EMPTY_QUEUE_FRAC,
        facts=(*_describe_depths(key, summary), *(() if is_own else _describe_readiness(facts, key))),
        # A queue of the user's code may be emptied by something other than steps.
        chart=chart_depths(facts.samples, key, f"depth-own-{number}") if is_own else _chart_by_step(facts, key, number),
        query={"tab": "processing", "queue": key.name},
    )


def _chart_by_step(facts: PipelineFacts, key: QueueKey, number: int) -> Chart:
    trace = trace_by_step(facts.samples, key)
    return Chart(
        id=f"depth-{key.name}-{number}",
        title=f"{label_queue(key)}: depth by {facts.noun}",
        caption=f"Batches in the queue when each {facts.noun} asked for one, of at most {trace.capacity}; a red mark is an empty queue.",
        figure=build_depths(trace.steps, trace.depths, trace.capacity, facts.noun),
        columns=(facts.noun.capitalize(), "Depth"),
        rows=tuple(
            (str(step), str(depth))
            for step, depth in zip(trace.steps[:ROW_LIMIT], trace.depths[:ROW_LIMIT], strict=True)
        ),
    )


def _count_empty(summary: QueueSummary) -> str:
    """Return text on how many of all requests found the queue empty.

    There can be more requests than steps: a step that accumulates gradients makes several requests.
    """
    empty = round(summary.empty_frac * summary.samples)
    return f"empty in {format_count(empty)} of {format_number_of(summary.samples, 'request')}"


def _describe_depths(key: QueueKey, summary: QueueSummary) -> tuple[Stat, ...]:
    has_limit = summary.capacity > 0
    of = f" of {summary.capacity}" if has_limit else ""
    usage = Stat("Usage", format_share(summary.usage_frac), "mean depth / capacity")
    return (
        Stat("Mean depth", f"{summary.mean_depth:.1f}{of}", "capacity" if has_limit else "no limit"),
        *((usage,) if has_limit else ()),
        Stat(
            "Empty",
            format_share(summary.empty_frac),
            f"of {format_number_of(summary.samples, 'request')} found no {'item' if key.loader is None else 'batch'}",
        ),
    )


def _describe_readiness(facts: PipelineFacts, key: QueueKey) -> tuple[Stat, ...]:
    """Return the share of requests whose next batch in order was not ready, even if the queue held later batches."""
    note = "of the requests. Batches come in order, and one that is ready early waits outside of the queue."
    return tuple(
        Stat("Next not ready", format_share(entry.not_ready_frac), note)
        for entry in facts.readiness
        if entry.queue == key.name
    )


def _describe_role(facts: PipelineFacts, key: QueueKey) -> str:
    if key.loader is None:
        return "A queue of your own. Its depth is recorded at each request for an item."
    if key.name == DEVICE_QUEUE:
        return "Device side: batches in pinned memory, ready for the step."
    if any(other.name == DEVICE_QUEUE for other in facts.queues):
        return "Host side: batches that the workers have made and that are not pinned yet."
    return (
        "Batches that the workers have made. There is no pin queue (pin_memory=False): the step takes them from here."
    )


def _chart_waits(facts: PipelineFacts) -> Chart | None:
    waits = facts.waits
    if not waits.data_wait_ns.any() and not waits.h2d_ns.any():
        return None
    noun = facts.noun
    parts = {"data_wait": waits.data_wait_ns, "h2d": waits.h2d_ns}
    labels = {"data_wait": "Wait for batch", "h2d": "Host-to-device / preparation"}
    longest = int(waits.steps[np.argmax(waits.data_wait_ns)])
    rows = zip(waits.steps.tolist(), waits.data_wait_ns.tolist(), waits.h2d_ns.tolist(), strict=True)
    return Chart(
        id="waits",
        title=f"Wait for batch and host-to-device by {noun}",
        caption=f"What each {noun} spent on its batch before the forward. The longest wait for data was at {noun} {longest}.",
        figure=build_stack(Stack(waits.steps, parts, labels=labels), Axes(noun, y_title="time")),
        columns=(noun.capitalize(), "Wait for batch", "Host-to-device"),
        rows=tuple(
            (str(step), format_duration(wait), format_duration(h2d)) for step, wait, h2d in list(rows)[:ROW_LIMIT]
        ),
    )


def _describe_coverage(facts: PipelineFacts) -> str:
    selection = facts.waits.selection
    kept = selection.step[selection.kept].tolist()
    if not kept:
        return ""
    noun = facts.noun
    text = f"Means are over {form_plural(noun) if len(kept) > 1 else noun} {format_steps(kept)}."
    left_out = explain_left_out(selection.left_out, noun)
    return f"{text} {left_out}. The charts show every {noun}." if left_out else text
