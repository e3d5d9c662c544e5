"""Write a run's timeline as a trace that Perfetto and chrome://tracing load, whole or a window of steps and ranks.

What is left out is told: in the trace's metadata and in the report that is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from collector.format.run import RankRun, Run
from collector.format.schema.errors import OptionError, RunError
from collector.views.trace_file import replacing
from collector.views.trace_text import EventWriter
from profiler_server.timeline.cache import TIMELINES
from profiler_server.timeline.export_rank import RankExport, StepWindow
from profiler_server.timeline.export_tables import carry_tables

Detail = Literal["steps", "device", "full"]
Numbers = str | Sequence[int] | None
"""Such as `"0,2-5"` or `[0, 2, 3]`; None for all."""
KINDS: dict[str, frozenset[str]] = {
    "steps": frozenset({"step", "phase"}),
    "device": frozenset({"step", "phase", "device", "stream", "worker", "stage"}),
}
"""Kinds of track that a detail shows; `full` shows all."""
_MOST_RANGES = 1000


@dataclass(frozen=True)
class ExportReport:
    """What was written. `left_out` are sentences, none if everything is there."""

    path: Path
    events: int
    slices: int
    flows: int
    left_out: tuple[str, ...] = field(default=())
    ranks: tuple[int, ...] = ()


def export_timeline(
    run: Run,
    output: Path | None = None,
    ranks: Numbers = None,
    steps: Numbers = None,
    detail: Detail = "full",
    between_ns: tuple[int, int] | None = None,
) -> ExportReport:
    """Write a trace: gzip if the path ends in .gz, plain JSON otherwise; None for `<run>.json.gz` here.

    `between_ns` is a stretch of time since the run's epoch; with `steps` too, the steps decide.

    Raises OutputError when the path cannot be written (then nothing is there), OptionError for ranks, steps or a
    detail that the run does not have, RunError when no rank can be read.
    """
    if detail not in ("steps", "device", "full"):
        raise OptionError(f"detail={detail!r} is unknown; choose steps, device or full")
    path = Path(f"{run.path.name}.json.gz") if output is None else output
    chosen = _choose_ranks(run, parse_numbers(ranks, "ranks"))
    ranges = parse_numbers(steps, "steps")
    stretch = StepWindow.between(*between_ns) if between_ns and ranges is None else None
    with replacing(path) as sink:
        opened, choice = [run.rank(rank) for rank in chosen], _Choice(ranges, stretch, detail)
        head = carry_tables(run, opened, choice.find_window) if detail == "full" else {}
        writer = EventWriter(sink, head)
        told = _write_ranks(writer, opened, choice)
        left_out = [*_tell_ranks(run, chosen), *told.left_out]
        if detail == "full" and not head:
            left_out.append("the tables themselves, which are too long: an import works them out of the events")
        report = ExportReport(path, writer.events, told.slices, told.flows, tuple(left_out), tuple(chosen))
        writer.close(_describe(run, report))
    return report


def count_export(run: Run, ranks: Numbers = None, between_ns: tuple[int, int] | None = None) -> int:
    """Return how many slices an export of all tracks would have. Raises as `export_timeline` does."""
    total = 0
    for rank in _choose_ranks(run, parse_numbers(ranks, "ranks")):
        timeline = TIMELINES.open(run.rank(rank))
        if between_ns is None:
            total += timeline.index.slices
            continue
        begin, end = (at - timeline.index.origin_ns for at in between_ns)
        windows = (timeline.raw.find_window(lane, begin, end) for lane in range(len(timeline.index.lanes)))
        total += sum(last - first for first, last in windows)
    return total


def parse_numbers(value: Numbers, what: str) -> tuple[tuple[int, int], ...] | None:
    """Return ranges, both ends included, of `0,2-5` or a list. Raises OptionError."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        return tuple((int(number), int(number)) for number in value)
    ranges = []
    for piece in value.split(","):
        ends = [end.strip() for end in piece.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) < 16 for end in ends):
            raise OptionError(f"{what}={value[:80]!r} is not understood at {piece[:20]!r}; write such as 0,2-5")
        ranges.append((int(ends[0]), int(ends[-1])))
    if len(ranges) > _MOST_RANGES or any(first > last for first, last in ranges):
        raise OptionError(f"{what}={value[:80]!r} is not a list of rising ranges such as 0,2-5")
    return tuple(ranges)


def _choose_ranks(run: Run, wanted: tuple[tuple[int, int], ...] | None) -> list[int]:
    there = run.ranks
    if wanted is None:
        return list(there)
    known = set(there)
    for first, last in wanted:
        missing = next((rank for rank in range(first, last + 1) if rank not in known), None)
        if missing is not None:
            raise OptionError(f"the run has no rank {missing}; it has {_list_numbers(there)}")
    return [rank for rank in there if any(first <= rank <= last for first, last in wanted)]


def _list_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "") or "none"


@dataclass
class _Told:
    slices: int = 0
    flows: int = 0
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Choice:
    ranges: tuple[tuple[int, int], ...] | None
    stretch: StepWindow | None
    detail: Detail

    def find_window(self, rank: RankRun) -> StepWindow | None:
        """Return what to write of a rank, None for all. Raises RunError."""
        return self.stretch or StepWindow.find(rank, self.ranges)


def _write_ranks(writer: EventWriter, ranks: list[RankRun], choice: _Choice) -> _Told:
    told = _Told()
    failed: list[RunError] = []
    found_steps = False
    for rank in ranks:
        try:
            steps = choice.find_window(rank)
            if steps is not None and not steps.count:
                continue
            found_steps = True
            export = RankExport(TIMELINES.open(rank), steps, KINDS.get(choice.detail))
            export.write(writer)
        except RunError as error:
            failed.append(error)
            told.left_out.append(f"rank {rank.rank}: {error}")
            continue
        told.slices += export.slices
        told.flows += export.flows
        told.left_out += [f"rank {rank.rank}: {text}" for text in export.left_out]
    if failed and len(failed) == len(ranks):
        raise failed[0]
    if not found_steps and not failed:
        raise OptionError("none of the steps asked for is in the run; see `profiler-server report` for those that are")
    return told


def _tell_ranks(run: Run, chosen: list[int]) -> Iterator[str]:
    missing = [rank for rank in run.ranks if rank not in chosen]
    if missing:
        yield f"ranks not chosen: {', '.join(map(str, missing[:50]))}{' …' if len(missing) > 50 else ''}"
    if len(run.ranks) < run.manifest.world_size:
        yield f"{run.manifest.world_size - len(run.ranks)} of {run.manifest.world_size} ranks left no data"


def _describe(run: Run, report: ExportReport) -> dict[str, Any]:
    manifest = run.manifest
    return {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": manifest.epoch_unix_ns,
        "metadata": {
            "producer": "Stepscope",
            "run": manifest.id,
            "name": manifest.name,
            "torch": manifest.torch,
            "slices": report.slices,
            "left_out": list(report.left_out),
        },
    }
