"""The bars of the workers: what each did for how long, those of the user's own stages too."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from profiler_server.analysis.data.replicas import ReplicaTimes, summarize_replicas
from profiler_server.format import format_count, format_share, format_shares, shorten_middle
from profiler_server.pages.data.facts import PipelineFacts

WORKER_LIMIT = 64


@dataclass(frozen=True)
class Segment:
    """A stretch of a worker's bar: `start` and `width` in percent of the longest worker's wall time."""

    kind: str
    start: float
    width: float


@dataclass(frozen=True)
class WorkerBar:
    """One worker: its bar, and the same as text. `number` is that of a DataLoader worker, by which it can be chosen."""

    label: str
    number: int | None
    batches: str
    segments: tuple[Segment, ...]
    shares: tuple[str, ...]


def build_workers(replicas: list[ReplicaTimes]) -> tuple[WorkerBar, ...]:
    longest = max((row.wall_ns for row in replicas), default=0) or 1
    return tuple(_build_worker(row, longest, f"Worker {row.replica}", row.replica) for row in replicas)


def build_own_replicas(facts: PipelineFacts) -> tuple[WorkerBar, ...]:
    """Return a bar for each replica of the user's own stages, as long as the longest of them."""
    rows = []
    for stage in facts.own_stages:
        of_stage = facts.own_rows.filter(pc.equal(facts.own_rows["stage"].cast(pa.string()), stage.name))
        rows += [(stage.name, row) for row in summarize_replicas(of_stage)[:WORKER_LIMIT]]
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
