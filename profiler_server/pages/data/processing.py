"""The tab Data processing: the stage graph, one queue over time, the work of each worker, and the slowest samples."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.schema.manifest import Loader
from collector.format.timeline_rows import find_workers
from profiler_server.analysis.data.queues import DEVICE_QUEUE, HOST_QUEUE, QueueKey
from profiler_server.analysis.data.replicas import (
    ReplicaTimes,
    StageTotals,
    find_slow_items,
    summarize_replicas,
    summarize_totals,
    summarize_transforms,
)
from profiler_server.analysis.selection import spell_numbers
from profiler_server.analysis.tables import read_rows
from profiler_server.diagnosis.readings import Reading, read_bottleneck, read_watched
from profiler_server.facts.pipeline import OwnStage
from profiler_server.figures.charts import Chart
from profiler_server.format import (
    fill_in,
    format_bytes,
    format_count,
    format_duration,
    format_number_of,
    format_share,
    format_shares,
    format_steps,
    shorten_middle,
)
from profiler_server.pages.data.facts import PipelineFacts, label_queue
from profiler_server.pages.data.graph import Lane, QueueBox, build_graph, build_own_graph, label_stage
from profiler_server.pages.data.interval import chart_depths
from profiler_server.stack_panel import StackPanel, build_stage_panel
from profiler_server.widgets import TextTable


def tabulate_transforms(facts: PipelineFacts) -> TextTable | None:
    rows = summarize_transforms(facts.chosen_rows)
    if not rows:
        return None
    return TextTable(
        "Transforms by name",
        ("Transform", "Time", "Share", "On a processor", "Calls", "Slowest call"),
        tuple(
            (
                shorten_middle(row.name, 48),
                format_duration(row.work_ns),
                format_share(row.share_frac),
                format_share(row.cpu_frac),
                format_count(row.items),
                format_duration(row.longest_ns),
            )
            for row in rows[:50]
        ),
        "Time that each transform took itself, summed over the workers.",
        tuple(round(100.0 * row.share_frac, 2) for row in rows[:50]),
    )


def tabulate_stages(facts: PipelineFacts) -> TextTable | None:
    loading, own = summarize_totals(facts.chosen_rows), summarize_totals(facts.own_rows)
    rows = [
        *(_format_totals(row, label_stage(row.stage)) for row in loading),
        *(_format_totals(row, row.stage) for row in own),
    ]
    if not rows:
        return None
    wall = _measure_wall(facts)
    return TextTable(
        "Totals by stage",
        (
            "Stage",
            "Replicas",
            "Batches",
            "Items",
            "Bytes",
            "Work",
            "On a processor",
            "Input wait",
            "Output wait",
            "Setup",
        ),
        tuple(rows),
        f"Sums over all replicas; what was recorded took {format_duration(wall)} of wall time. "
        "Work that is not on a processor waits: for a disk, a network, or a core that is taken.",
    )


def _format_totals(row: StageTotals, label: str) -> tuple[str, ...]:
    return (
        shorten_middle(label),
        format_count(row.replicas),
        format_count(row.batches),
        format_count(row.items),
        format_bytes(row.bytes),
        format_duration(row.work_ns),
        format_share(row.cpu_frac),
        format_duration(row.input_wait_ns),
        format_duration(row.output_wait_ns),
        format_duration(row.setup_ns + row.cleanup_ns),
    )


def _measure_wall(facts: PipelineFacts) -> int:
    steps = read_rows(facts.rank, "steps", ("start_ns", "duration_ns"))
    rows = [table.select(("start_ns", "duration_ns")) for table in (steps, facts.own_rows) if table.num_rows]
    if not rows:
        return 0
    both = pa.concat_tables([table.cast(rows[0].schema) for table in rows])
    starts, lengths = both["start_ns"].to_numpy(), both["duration_ns"].to_numpy()
    return int((starts + lengths).max() - starts.min())


def tabulate_slow_items(facts: PipelineFacts) -> TextTable | None:
    rows = find_slow_items(facts.chosen_rows)
    if not rows:
        return None
    return TextTable(
        "Slowest samples",
        ("Sample", "Stage", "Time", "Worker", fill_in("{Epoch}"), "Batch"),
        tuple(
            (
                "n/a" if row.item is None else f"dataset[{row.item}]",
                shorten_middle(label_stage(row.stage), 20)
                + (f": {shorten_middle(row.detail, 20)}" if row.detail else ""),
                format_duration(row.longest_ns),
                "main process" if row.replica < 0 else str(row.replica),
                "n/a" if row.epoch is None else str(row.epoch),
                "n/a" if row.batch is None else str(row.batch),
            )
            for row in rows
        ),
        "The samples that took longest, with their index in the dataset where it is known, and the stage that took most.",
        spans_ns=tuple((row.start_ns, row.end_ns) for row in rows),
    )


WORKER_LIMIT = 64


@dataclass(frozen=True)
class Segment:
    """A section of a worker's bar: `start` and `width` are percentages of the longest worker's wall time."""

    kind: str
    start: float
    width: float


@dataclass(frozen=True)
class WorkerBar:
    """One worker: the segments of its bar, and as text the shares of its wall time: work, input wait, output wait,
    setup, none of these, and send. `number` is that of a DataLoader worker, None for a replica of the user's own stage.
    """

    label: str
    number: int | None
    batches: str
    segments: tuple[Segment, ...]
    shares: tuple[str, ...]


def build_own_replicas(facts: PipelineFacts) -> tuple[WorkerBar, ...]:
    rows = []
    for stage in facts.own_stages:
        of_stage = facts.own_rows.filter(pc.equal(facts.own_rows["stage"].cast(pa.string()), stage.name))
        rows += [(stage.name, row) for row in summarize_replicas(of_stage)]
    longest = max((row.wall_ns for _, row in rows), default=0) or 1
    return tuple(_build_worker(row, longest, f"{shorten_middle(name, 32)} {row.replica}") for name, row in rows)


def _build_worker(row: ReplicaTimes, longest_ns: int, label: str, number: int | None = None) -> WorkerBar:
    parts = {
        "work": row.work_ns,
        "setup": row.setup_ns,
        "input_wait": row.input_wait_ns,
        "output_wait": row.output_wait_ns,
        "other": row.other_ns,
    }
    segments = []
    at = 0.0
    for kind, time_ns in parts.items():
        width = 100.0 * time_ns / longest_ns
        if width > 0:
            segments.append(Segment(kind, round(at, 3), round(width, 3)))
            at += width
    wall = row.wall_ns or 1
    shown = ("work", "input_wait", "output_wait", "setup", "other")
    shares = (*format_shares([parts[kind] / wall for kind in shown]), format_share(row.send_ns / wall))
    return WorkerBar(label, number, f"{format_count(row.batches)}", tuple(segments), shares)


@dataclass(frozen=True)
class WorkerChoice:
    """The workers that the tables show. `text` lists their numbers, and `sentence` names the figures that still cover
    all workers; both are "" if no workers were chosen.
    """

    text: str
    sentence: str


@dataclass(frozen=True)
class QueuePanel:
    """One queue over time, with the stages that fill it (`before`) and empty it (`after`)."""

    label: str
    before: str
    after: str
    chart: Chart


@dataclass(frozen=True)
class ProcessingView:
    """The content of the tab. An element is None or an empty tuple if the run has no data for it."""

    lead: Reading
    graph: tuple[Lane | QueueBox, ...]
    own_graph: tuple[Lane | QueueBox, ...]
    panel: QueuePanel | None
    panel_missing: str
    workers: tuple[WorkerBar, ...]
    workers_left_out: int
    choice: WorkerChoice | None
    transforms: TextTable | None
    stacks: StackPanel | None
    stages: TextTable | None
    slow_items: TextTable | None
    arguments: tuple[tuple[str, str], ...]
    is_watched: bool


def build_processing(facts: PipelineFacts, open_queue: str) -> ProcessingView:
    replicas = [row for row in summarize_replicas(facts.chosen_rows) if row.replica >= 0]
    longest = max((row.wall_ns for row in replicas), default=0) or 1
    bars = [_build_worker(row, longest, f"Worker {row.replica}", row.replica) for row in replicas]
    bars += build_own_replicas(facts)
    key = next((key for key in facts.queue_keys if key.name == open_queue), None)
    return ProcessingView(
        lead=_name_bottleneck(facts),
        # A run with only its own stages has no loader and no step to draw.
        graph=build_graph(facts, open_queue) if facts.loader or len(facts.waits.steps) or not facts.own_stages else (),
        own_graph=build_own_graph(facts, open_queue),
        panel=_build_panel(facts, key) if key else None,
        panel_missing=f"This loader has no queue {open_queue[:60]!r}." if open_queue and key is None else "",
        workers=tuple(bars[:WORKER_LIMIT]),
        choice=_describe_choice(facts),
        workers_left_out=max(0, len(bars) - WORKER_LIMIT),
        transforms=tabulate_transforms(facts),
        stacks=build_stage_panel(facts.rank, facts.loader.id) if facts.loader is not None else None,
        stages=tabulate_stages(facts),
        slow_items=tabulate_slow_items(facts),
        arguments=list_arguments(facts.loader) if facts.loader else (),
        is_watched=facts.loader is not None and facts.loader.watched,
    )


def _describe_choice(facts: PipelineFacts) -> WorkerChoice | None:
    every = {row for row in pc.unique(find_workers(facts.stage_rows)).to_pylist() if row is not None}
    if len(every) < 2 and facts.workers is None:
        return None
    if facts.workers is None:
        return WorkerChoice("", "")
    which = format_steps(facts.workers, 12)
    noun = "worker" if len(facts.workers) == 1 else "workers"
    return WorkerChoice(
        spell_numbers(facts.workers),
        f"The tables show {noun} {which} of {format_count(len(every))}, and the other processes. "
        "Verdict, stages and queues above are those of all workers.",
    )


def _name_bottleneck(facts: PipelineFacts) -> Reading:
    if facts.loader is None and facts.own_bottleneck is not None:
        return read_bottleneck(facts.own_bottleneck)
    if facts.loader is None and not facts.queues:
        return Reading("plain", "No DataLoader was used", fill_in("The script brings its own data to the {noun}."))
    if facts.loader is not None and facts.loader.watched:
        return read_watched(facts.loader, facts.waits.wait_frac, facts.noun)
    return read_bottleneck(facts.bottleneck)


def _build_panel(facts: PipelineFacts, key: QueueKey) -> QueuePanel:
    chart = chart_depths(facts.samples, key, "queue-over-time")
    return QueuePanel(label_queue(key), *_describe_sides(facts, key), chart)


def _describe_sides(facts: PipelineFacts, key: QueueKey) -> tuple[str, str]:
    workers = facts.loader.num_workers if facts.loader else 0
    makers = f"{format_count(workers)} worker process{'es' if workers != 1 else ''}"
    has_pin = any(other.name == DEVICE_QUEUE and other.loader is not None for other in facts.queue_keys)
    if key.loader is not None and key.name == HOST_QUEUE:
        return makers, "1 pin-memory thread" if has_pin else "1 main process"
    if key.loader is not None and key.name == DEVICE_QUEUE:
        return "1 pin-memory thread", "1 main process"
    fillers = [_count_replicas(stage) for stage in facts.own_stages if key.name in stage.outputs]
    takers = [_count_replicas(stage) for stage in facts.own_stages if key.name in stage.inputs]
    return ", ".join(fillers) or "your own producers", ", ".join(takers) or "your own consumers"


def _count_replicas(stage: OwnStage) -> str:
    return f"{format_count(stage.summary.replicas)} × {shorten_middle(stage.name, 32)}"


def list_arguments(loader: Loader) -> tuple[tuple[str, str], ...]:
    iterable = (
        "IterableDataset: every worker yields every sample, unless __iter__ splits them by get_worker_info()"
        if loader.style == "iterable"
        else "map-style"
    )
    length = (
        "unknown"
        if loader.length_batches is None
        else f"{format_number_of(loader.length_batches, 'batch')} per {fill_in('{epoch}')}"
    )
    if loader.watched:
        return (("watched iterable", shorten_middle(loader.dataset, 60)), ("length", length))
    return (
        ("dataset", f"{shorten_middle(loader.dataset, 60)} ({iterable})"),
        ("length", length),
        ("batch_size", str(loader.batch_size)),
        ("num_workers", str(loader.num_workers)),
        ("prefetch_factor", str(loader.prefetch_factor)),
        ("pin_memory", str(loader.pin_memory)),
        ("persistent_workers", str(loader.persistent_workers)),
        ("in_order", str(loader.in_order)),
        ("shuffle", "unknown" if loader.shuffle is None else str(loader.shuffle)),
        ("start method", loader.start_method or "no workers"),
    )
