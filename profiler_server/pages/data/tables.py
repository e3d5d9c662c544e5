"""The tables of the tab Data processing: transforms by name, totals by stage, the slowest samples."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from profiler_server.analysis.data.replicas import (
    StageTotals,
    find_slow_items,
    read_steps,
    summarize_totals,
    summarize_transforms,
)
from profiler_server.format import format_bytes, format_count, format_duration, format_share, shorten_middle
from profiler_server.pages.data.facts import PipelineFacts
from profiler_server.pages.data.graph import STAGE_LABELS


@dataclass(frozen=True)
class TextTable:
    """A table of formatted text; `bars` is a percent per row, `spans_ns` its place on the timeline, empty for none."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[float, ...] = ()
    spans_ns: tuple[tuple[int, int], ...] = ()


def tabulate_transforms(facts: PipelineFacts) -> TextTable | None:
    rows = summarize_transforms(facts.chosen_rows)
    if not rows:
        return None
    return TextTable(
        "Transforms by name",
        "Time that each transform took itself, summed over the workers.",
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
        tuple(round(100.0 * row.share_frac, 2) for row in rows[:50]),
    )


def tabulate_stages(facts: PipelineFacts) -> TextTable | None:
    loading, own = summarize_totals(facts.chosen_rows), summarize_totals(facts.own_rows)
    rows = [
        *(_format_totals(row, STAGE_LABELS.get(row.stage, row.stage)) for row in loading),
        *(_format_totals(row, row.stage) for row in own),
    ]
    if not rows:
        return None
    wall = _measure_wall(facts)
    return TextTable(
        "Totals by stage",
        f"Sums over all replicas; what was recorded took {format_duration(wall)} of wall time. "
        "Work that is not on a processor waits: for a disk, a network, or a core that is taken.",
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
    steps = read_steps(facts.rank, ("start_ns", "duration_ns"))
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
        "The samples that took longest, with their index in the dataset where it is known, and the stage that took most.",
        ("Sample", "Stage", "Time", "Worker", "Epoch", "Batch"),
        tuple(
            (
                "n/a" if row.item is None else f"dataset[{row.item}]",
                STAGE_LABELS.get(row.stage, shorten_middle(row.stage, 20))
                + (f": {shorten_middle(row.detail, 20)}" if row.detail else ""),
                format_duration(row.longest_ns),
                "training process" if row.replica < 0 else str(row.replica),
                "n/a" if row.epoch is None else str(row.epoch),
                "n/a" if row.batch is None else str(row.batch),
            )
            for row in rows
        ),
        spans_ns=tuple((row.start_ns, row.end_ns) for row in rows),
    )
