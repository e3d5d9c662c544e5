"""Write a run's timeline, or a window of steps and ranks, as a trace for Perfetto and chrome://tracing.

The metadata of the trace and the returned report list the parts that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from collector.format.carried import carry_tables
from collector.format.run import RankRun, Run
from collector.format.schema.errors import OptionError, RunError
from collector.format.timeline_rows import check_numbers, list_workers
from collector.traces.writing import EventWriter, replacing
from profiler_server.analysis.ranks.one_clock import RankClock, align_ranks
from profiler_server.analysis.ranks.ranks import summarize_some
from profiler_server.analysis.selection import Numbers, choose_workers, parse_numbers
from profiler_server.timeline.cache import find_timelines
from profiler_server.timeline.export_rank import RankExport, Shown, StepWindow

Detail = Literal["steps", "device", "full"]
KINDS: dict[str, frozenset[str]] = {
    "steps": frozenset({"step", "phase"}),
    "device": frozenset({"step", "phase", "device", "stream", "worker", "stage"}),
}
"""Kinds of track at each level of detail; `full` has all kinds."""


@dataclass(frozen=True)
class ExportReport:
    """The result of an export. `left_out` has a sentence for each omission; it is empty for a complete export."""

    path: Path
    events: int
    slices: int
    flows: int
    left_out: tuple[str, ...] = field(default=())
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Part:
    """The part of a run to export; None selects all. Ranks and workers keep their numbers.

    `between_ns` is a time range since the run's epoch; it is ignored if `steps` is given. With `one_clock`, all times
    (also `between_ns`) are on the clock of the first rank, and each rank is one process of the trace.
    """

    ranks: Numbers = None
    steps: Numbers = None
    detail: Detail = "full"
    between_ns: tuple[int, int] | None = None
    workers: Numbers = None
    one_clock: bool = False


def export_timeline(run: Run, output: Path | None = None, part: Part | None = None) -> ExportReport:
    """Write a trace, in gzip if the path ends in .gz. Without a path, write `<run>.json.gz` in the current folder.

    Raises OutputError when the path cannot be written (then no file is left), OptionError for ranks, workers, steps or
    a detail that the run does not have, RunError when no rank can be read.
    """
    part = part or Part()
    if part.detail not in ("steps", "device", "full"):
        raise OptionError(f"detail={part.detail!r} is unknown; choose steps, device or full")
    path = Path(f"{run.path.name}.json.gz") if output is None else output
    chosen = choose_ranks(run, parse_numbers(part.ranks, "ranks"))
    opened = [run.rank(rank) for rank in chosen]
    choice = _Choice.of(part, opened, find_clocks(run, part))
    with replacing(path) as sink:
        # The tables of a few workers would tell wrong shares of the whole pipeline, and tables have no common clock.
        is_whole = part.detail == "full" and choice.workers is None and not part.one_clock
        head = carry_tables(run, opened, choice.find_window) if is_whole else {}
        writer = EventWriter(sink, head)
        exports, lacks = _write_ranks(writer, opened, choice)
        left_out = [*_tell_ranks(run, chosen), *_tell_clocks(choice.clocks), *lacks]
        if is_whole and not head:
            left_out.append("the tables themselves, which are too long: an import computes them from the events")
        slices, flows = sum(export.slices for export in exports), sum(export.flows for export in exports)
        report = ExportReport(path, writer.events, slices, flows, tuple(left_out), tuple(chosen))
        writer.close(_describe(run, report, choice.clocks))
    return report


def find_clocks(run: Run, part: Part) -> dict[int, RankClock]:
    """Return the clock of each selected rank by its number, relative to the first selected rank; empty without
    `one_clock`.

    A rank with an unknown clock is shifted so that its timeline starts together with that of the first rank. Raises
    OptionError if `part.ranks` is invalid."""
    if not part.one_clock:
        return {}
    wanted = parse_numbers(part.ranks, "ranks")
    there = choose_ranks(run, wanted)
    first = wanted[0][0] if wanted else there[0]
    numbers = [first, *(rank for rank in there if rank != first)]
    return {clock.rank: _begin_together(run, first, clock) for clock in align_ranks(summarize_some(run, numbers))}


def _begin_together(run: Run, first: int, clock: RankClock) -> RankClock:
    if clock.known != "unknown":
        return clock
    try:
        origins = [find_timelines().open(run.rank(rank)).index.origin_ns for rank in (first, clock.rank)]
    except RunError:
        return clock  # whoever writes the rank says why it cannot be read
    return replace(clock, shift_ns=origins[0] - origins[1])


def count_export(run: Run, part: Part) -> int:
    """Return the number of slices that an export of all tracks and steps has, or of the range `part.between_ns` if
    given.

    Raises OptionError or RunError.
    """
    total, clocks = 0, find_clocks(run, part) if part.between_ns else {}
    for rank in choose_ranks(run, parse_numbers(part.ranks, "ranks")):
        timeline = find_timelines().open(run.rank(rank))
        if part.between_ns is None:
            total += timeline.index.slices
            continue
        begin, end = (at - timeline.index.origin_ns for at in _read_back(clocks.get(rank), part.between_ns))
        windows = (timeline.raw.find_window(lane, begin, end) for lane in range(len(timeline.index.lanes)))
        total += sum(last - first for first, last in windows)
    return total


def _read_back(clock: RankClock | None, between_ns: tuple[int, int]) -> tuple[int, int]:
    return (clock.read_back(between_ns[0]), clock.read_back(between_ns[1])) if clock else between_ns


def choose_ranks(run: Run, wanted: tuple[tuple[int, int], ...] | None) -> list[int]:
    there = run.ranks
    if wanted is None:
        return list(there)
    check_numbers("rank", there, (rank for first, last in wanted for rank in range(first, last + 1)))
    return [rank for rank in there if any(first <= rank <= last for first, last in wanted)]


@dataclass(frozen=True)
class _Choice:
    ranges: tuple[tuple[int, int], ...] | None
    between_ns: tuple[int, int] | None
    detail: Detail
    clocks: Mapping[int, RankClock]
    workers: frozenset[int] | None = None

    @classmethod
    def of(cls, part: Part, ranks: Sequence[RankRun], clocks: Mapping[int, RankClock]) -> _Choice:
        ranges = parse_numbers(part.steps, "steps")
        between_ns = part.between_ns if ranges is None else None
        return cls(ranges, between_ns, part.detail, clocks, choose_workers(ranks, part.workers))

    @property
    def shown(self) -> Shown:
        return Shown(KINDS.get(self.detail), self.workers)

    def find_window(self, rank: RankRun) -> StepWindow | None:
        """Return the time window of a rank that is to be written; None for the whole rank. Raises RunError."""
        if self.between_ns is None:
            return StepWindow.find(rank, self.ranges)
        return StepWindow.between(*_read_back(self.clocks.get(rank.rank), self.between_ns))


def _write_ranks(writer: EventWriter, ranks: list[RankRun], choice: _Choice) -> tuple[list[RankExport], list[str]]:
    """Write the ranks. Return the export of each rank, and sentences on what was left out."""
    exports: list[RankExport] = []
    left_out: list[str] = []
    failed: list[RunError] = []
    found_steps = False
    for rank in ranks:
        try:
            steps = choice.find_window(rank)
            if steps is not None and not steps.count:
                continue
            found_steps = True
            export = RankExport(find_timelines().open(rank), steps, choice.shown, choice.clocks.get(rank.rank))
            export.write(writer)
        except RunError as error:
            failed.append(error)
            left_out.append(f"rank {rank.rank}: {error}")
            continue
        exports.append(export)
        if choice.workers is not None:
            others = [str(number) for number in list_workers([rank]) if number not in choice.workers]
            left_out += [f"rank {rank.rank}: workers not chosen: {', '.join(others)}"] if others else []
        left_out += [f"rank {rank.rank}: {text}" for text in export.left_out]
    if failed and len(failed) == len(ranks):
        raise failed[0]
    if not found_steps and not failed:
        raise OptionError("none of the steps asked for is in the run; see `stepscope report` for those that are")
    return exports, left_out


def _tell_ranks(run: Run, chosen: list[int]) -> Iterator[str]:
    missing = [rank for rank in run.ranks if rank not in chosen]
    if missing:
        yield f"ranks not chosen: {', '.join(map(str, missing[:50]))}{' …' if len(missing) > 50 else ''}"
    if len(run.ranks) < run.manifest.world_size:
        yield f"{run.manifest.world_size - len(run.ranks)} of {run.manifest.world_size} ranks left no data"


def _tell_clocks(clocks: Mapping[int, RankClock]) -> Iterator[str]:
    for clock in clocks.values():
        if clock.known == "reference":
            yield "the tables themselves, whose times are on the clock of each rank"
        if clock.known == "unknown":
            yield f"the clock of rank {clock.rank}, which is not known: its times begin with those of the first rank"


def _describe(run: Run, report: ExportReport, clocks: Mapping[int, RankClock]) -> dict[str, Any]:
    manifest = run.manifest
    aligned = {"clocks": [asdict(clock) for clock in clocks.values()]} if clocks else {}
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
            **aligned,
        },
    }
