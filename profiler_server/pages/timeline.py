"""The Timeline page: all slices of a rank, with totals, a search, and the download as a trace file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.schema.errors import OptionError, StepscopeError, TableBrokenError, TableMissingError
from collector.format.steps import is_kind
from profiler_server.analysis.operators.operators import summarize_operators
from profiler_server.analysis.ranks.one_clock import MOST_TOGETHER, align_ranks
from profiler_server.analysis.ranks.ranks import summarize_some
from profiler_server.analysis.selection import choose_ranks, spell_numbers
from profiler_server.diagnosis.clock_sentences import describe_clocks
from profiler_server.facts.results import OperatorRow
from profiler_server.format import fill_in, format_count, format_duration, format_number_of
from profiler_server.page import WINDOW_REMEDY, Notice, Page, PageRequest, choose_remedy
from profiler_server.timeline.cache import find_timelines
from profiler_server.timeline.search import NameTotal, list_longest
from profiler_server.timeline.sources import MEASURED_TABLES
from profiler_server.timeline.store import Timeline
from profiler_server.timeline.view import find_last_phased, view_clock, view_meta
from profiler_server.widgets import Stat

PROPOSED = 3


@dataclass(frozen=True)
class Together:
    """The field for choosing ranks, at most `most`. `sentence` is on their clocks, `problem` on an invalid choice."""

    text: str
    most: int
    sentence: str
    problem: str = ""


@dataclass(frozen=True)
class Chosen:
    """The ranks shown together, empty if only one rank is shown. `clocks` is in the format that the viewer reads."""

    together: Together | None
    ranks: tuple[int, ...] = ()
    clocks: tuple[dict[str, Any], ...] = ()


def read_chosen(request: PageRequest) -> Chosen:
    """Return the ranks that `?ranks=5,0,3` names, and the clocks of these ranks. The rank in `?rank=` comes first.

    The clock of the first rank is the reference, and the totals are of that rank. Without `?ranks=`, some ranks are
    proposed. If the ranks cannot be shown together, the result has no ranks, and `together.problem` gives the reason.
    """
    if len(request.ranks) < 2:
        return Chosen(None)
    text = request.query.get("ranks", "").strip()
    if not text:
        return Chosen(Together(spell_numbers(request.ranks[:PROPOSED]), MOST_TOGETHER, ""))
    try:
        ranks = choose_ranks(request.ranks, text, MOST_TOGETHER)
    except OptionError as error:
        problem = f"These ranks cannot be shown together: {error}. Rank {request.rank} is shown."
        return Chosen(Together(text[:200], MOST_TOGETHER, "", problem))
    if request.query.get("rank"):
        ranks = tuple(dict.fromkeys((request.rank, *ranks)))[:MOST_TOGETHER]
    clocks = align_ranks(summarize_some(request.run, ranks))
    sentence = f"{describe_clocks(clocks)} Totals and the search are those of rank {ranks[0]}.".strip()
    told = Together(",".join(map(str, ranks)), MOST_TOGETHER, sentence)
    return Chosen(told, ranks, tuple(view_clock(clock) for clock in clocks))


MOST_NAMES_IN_PAGE = 5_000
STEP_MARGIN_FRAC = 0.05
DEVICE_WORK = ("kernel", "memcpy", "memset", "communication")


@dataclass(frozen=True)
class TimelinePage:
    """The context of timeline.html. `data` is the viewer's initial data, `first_tile` the query of the first tile."""

    notice: Notice | None
    partial: Notice | None
    totals: tuple[Stat, ...]
    longest: tuple[NameTotal, ...]
    data: dict[str, Any]
    first_tile: dict[str, int | str] | None
    search: str
    export_name: str
    together: Together | None = None
    step_missing: Notice | None = None


def build(request: PageRequest) -> TimelinePage:
    """Build the page. A large timeline is prepared in the background, and the page shows the progress meanwhile.

    `?ranks=5,0,3` shows several ranks below each other, on the clock of the first of them.
    """
    chosen = read_chosen(request)
    if chosen.ranks:
        request = replace(request, rank=chosen.ranks[0])
    rank = request.rank_run
    data: dict[str, Any] = {"rank": request.rank, "ranks": list(chosen.ranks or request.ranks), "meta": None}
    data |= {"together": bool(chosen.ranks), "clocks": list(chosen.clocks)}
    search = request.query.get("q", "")[:200]
    base = TimelinePage(None, _find_partial(rank), (), (), data, None, search, request.run.manifest.name)
    base = replace(base, together=chosen.together)
    base = _open_step(base, rank, request.query.get("step", ""))
    if request.steps is not None and not {"step", "t0", "t1"} & set(request.query):
        base.data["span"] = rank.through(request.steps).span_ns
    try:
        if find_timelines().is_awaited(rank):
            return base
    except StepscopeError as failure:
        return _show_failure(base, rank, failure, "Reload the page to have it prepared again.")
    try:
        return find_timelines().ask(rank, lambda timeline: _fill(base, request, timeline))
    except (TableBrokenError, OverflowError, pa.ArrowException) as error:
        return _show_failure(base, rank, error)


def _fill(base: TimelinePage, request: PageRequest, timeline: Timeline) -> TimelinePage:
    data = dict(base.data)
    if not timeline.index.slices and not timeline.index.counters:
        return TimelinePage(_explain_empty(request.rank_run), None, (), (), data, None, "", base.export_name)
    meta = view_meta(timeline)
    if len(meta["names"]) <= MOST_NAMES_IN_PAGE:
        data["meta"] = meta
    first: dict[str, int | str] = {
        "rank": request.rank,
        "stamp": timeline.stamp,
        "level": timeline.index.top_level,
        "number": 0,
    }
    totals = _sum_totals(timeline)
    return replace(base, data=data, totals=totals, longest=list_longest(timeline), first_tile=first)


def _show_failure(page: TimelinePage, rank: RankRun, error: Exception, advice: str = "") -> TimelinePage:
    reason = " ".join(filter(None, (f"{str(error).rstrip('.')}.", advice)))
    notice = Notice("failed", "The timeline cannot be prepared", reason)
    return replace(page, notice=notice, partial=None, search="")


def _open_step(page: TimelinePage, rank: RankRun, asked: str) -> TimelinePage:
    if not asked:
        return page
    span = _find_step(rank, int(asked)) if asked.isascii() and asked.isdigit() and len(asked) <= 15 else None
    if span is None:
        reason = f"This rank recorded no step {asked[:20]}. The whole run is shown."
        return replace(page, step_missing=Notice("empty", "No such step", reason))
    page.data["span"] = span
    return page


def _find_step(rank: RankRun, number: int) -> tuple[int, int] | None:
    """Return begin and end of a training step, with a margin on both sides, in ns since the run's epoch; None if the
    rank has no such step."""
    if rank.status("steps").state != "there":
        return None
    steps = rank.table("steps", ("step", "kind", "start_ns", "duration_ns"))
    chosen = pc.and_(pc.equal(steps["step"], number), is_kind(steps, "train"))
    found = steps.filter(chosen).to_pylist()
    if not found:
        return None
    start, length = found[0]["start_ns"], found[0]["duration_ns"]
    margin = round(STEP_MARGIN_FRAC * length)
    return start - margin, start + length + margin


def _find_partial(rank: RankRun) -> Notice | None:
    """Return a notice on the missing part of the timeline: damaged tables, else slices; None if it is complete."""
    broken = [table for table in MEASURED_TABLES if rank.status(table).state == "broken"]
    if broken:
        reason = f"Damaged: {', '.join(broken)}. The other tables of the run are shown."
        return Notice("failed", "A part of the timeline is missing", reason)
    status = rank.status("slices")
    if status.state == "there":
        return None
    title, reason = "Steps, phases and the data pipeline only", status.reason
    if status.state in ("missing", "empty") or not reason:
        reason = "Operators and kernels are recorded in detailed windows; this run has none."
    if status.state in ("failed", "broken"):
        return Notice("failed", title, reason)
    return Notice("off", title, reason, choose_remedy(rank, "slices", WINDOW_REMEDY))


def _explain_empty(rank: RankRun) -> Notice:
    if rank.state == "recording":
        return Notice("empty", "Nothing yet", "The run has just begun; its first step shows within a few seconds.")
    status = rank.status("steps")
    return Notice("empty", "No timeline", status.reason or "This rank recorded no step, no slice and no counter.")


def _count_slices(timeline: Timeline) -> Stat:
    """Return the number of recorded slices. Slices that are only drawn (for steps, phases and busy time) have a count
    of their own.
    """
    index, over = timeline.index, f"over {format_duration(timeline.span_ns)}"
    drawn = sum(index.derived_rows)
    if not index.table_rows or not drawn:
        return Stat("Slices", format_count(index.slices), over)
    more = f"; {format_count(drawn)} more drawn for {fill_in('{nouns}')}, phases and busy time"
    return Stat("Slices", format_count(index.table_rows), over + more)


def _sum_totals(timeline: Timeline) -> tuple[Stat, ...]:
    names = timeline.names
    category = np.asarray(names.category, dtype=object)
    device = np.isin(category, DEVICE_WORK) & (names.count > 0)
    derived = {"Computation", "Communication, overlapped", "Communication, exposed", "Copies, exposed"}
    device &= ~np.isin(np.asarray(names.name, dtype=object), list(derived))
    streams = sum(track.kind == "stream" for track in timeline.index.tracks)
    threads = sum(track.kind == "thread" for track in timeline.index.tracks)
    operators = _read_operators(timeline.rank)
    own = sum(row.self_ns for row in operators) if operators else None
    totals = [
        _count_slices(timeline),
        Stat("Operator time", format_duration(own), "on the host, callees not counted twice"),
        Stat("Operators", format_count(len(operators)), format_number_of(sum(r.count for r in operators), "execution")),
    ]
    if streams:
        busy = int(names.total_ns[device].sum())
        totals.append(Stat("Device time", format_duration(busy), "summed over all streams"))
        kernels = f"{format_count(int(names.count[device].sum()))} executions"
        totals.append(Stat("Stream" if streams == 1 else "Streams", format_count(streams), kernels))
    else:
        totals.append(
            Stat("Thread" if threads == 1 else "Threads", format_count(threads), "no device stream in this run")
        )
    return (*totals, *_count_phased(timeline.rank))


def _count_phased(rank: RankRun) -> tuple[Stat, ...]:
    last = find_last_phased(rank)
    note = "a recording keeps the phases of the first steps, and those of detailed windows"
    return () if last is None else (Stat("Phases drawn", f"to step {format_count(last)}", note),)


def _read_operators(rank: RankRun) -> tuple[OperatorRow, ...]:
    try:
        return summarize_operators(rank)
    except (TableMissingError, TableBrokenError):
        return ()


PAGE = Page("timeline", "Timeline", 60, "t", "timeline.html", build)
