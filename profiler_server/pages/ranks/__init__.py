"""The Ranks page: the ranks of a run side by side, which of them is behind and why, and who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from collector.format.run import Run
from collector.format.schema.wording import format_ranks_named
from collector.hangs.recorded import describe_standstills
from profiler_server.analysis.ranks.collectives import match_ranks, summarize_collectives
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.ranks.examples import Example, choose_example, prefer_detailed
from profiler_server.analysis.ranks.held import Hang
from profiler_server.analysis.ranks.ranks import MOST_RANKS, RankSummary, find_noun, peek_ranks
from profiler_server.analysis.ranks.slow_calls import find_slow_call
from profiler_server.analysis.ranks.status import describe_status
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.analysis.what_if.reading import recall_what_if
from profiler_server.derive.background import note_provisional
from profiler_server.derive.many import SoFar
from profiler_server.diagnosis.end_sentences import describe_end, name_title
from profiler_server.diagnosis.rank_sentences import (
    describe_communication,
    describe_evidence,
    describe_slow_call,
    describe_straggler,
    describe_unread,
)
from profiler_server.facts.job import NotJudged, RankVerdict, Turns, UnevenWork, Unsure
from profiler_server.figures import Chart
from profiler_server.format import format_number_of
from profiler_server.page import Notice, Page, PageRequest
from profiler_server.pages.ranks.charts import build_charts
from profiler_server.pages.ranks.collectives import CollectiveTable, view_collectives
from profiler_server.pages.ranks.devices import read_devices
from profiler_server.pages.ranks.maps import StepMap, build_map
from profiler_server.pages.ranks.rows import (
    HostRow,
    Order,
    RankTable,
    list_hosts,
    list_rows,
    order_ranks,
    sorts_by_device,
)
from profiler_server.pages.ranks.what_if import WhatIfView, view_what_if
from profiler_server.pages.ranks.words import HoldUp, Stat, draw_hold_up, list_stats

IMPORT = "profiler-server import a-folder-of-traces --summary-base-dir runs"
_LATER = "Which of them holds the others up is said when all are read; this page fills itself in."
SEVERAL = """torchrun --nproc-per-node 4 train.py

# in train.py: every rank makes the same call, and writes a folder of its own
profiler = Profiler("runs/my-run")"""


@dataclass(frozen=True)
class Comparison:
    """Everything that the page shows of two ranks or more. `notes` say what is missing from it; `example` are the ranks
    that its link shows on one timeline."""

    sentence: str
    tone: str
    stats: tuple[Stat, ...]
    table: RankTable
    charts: tuple[Chart, ...]
    map: StepMap
    noun: str
    detail: str = ""
    picture: HoldUp | None = None
    hosts: tuple[HostRow, ...] = ()
    hosts_of_all: int = 0
    collectives: CollectiveTable | None = None
    what_if: WhatIfView | None = None
    notes: tuple[str, ...] = ()
    example: Example | None = None


@dataclass(frozen=True)
class RanksPage:
    """Either a comparison, or a notice that says why there is nothing to compare, with the collectives of the one rank.

    `progress` says how many of very many ranks are read so far; empty when all are.
    """

    notice: Notice | None
    comparison: Comparison | None
    alone: CollectiveTable | None = None
    progress: str = ""


def build(request: PageRequest) -> RanksPage:
    """Build the page. `?sort=-own` sorts the ranks by a column, falling with a dash; `?map=wait` chooses what the map
    shows, `?host=` the ranks of one host, and `?page=` a part of very many."""
    end = find_end(request.run)
    if isinstance(end, Hang):
        return RanksPage(Notice("failed", name_title(end), describe_end(end)), None)
    found = peek_ranks(request.run, partial(_prepare, request.run))
    ranks = found.results
    if not found.is_whole:
        return _show_so_far(request, found)
    known = [rank for rank in ranks if rank.steps]
    if end is not None and (len(ranks) < 2 or not known):
        return RanksPage(Notice("failed", name_title(end), describe_end(end)), None)
    if len(ranks) < 2:
        alone = view_collectives(summarize_collectives(ranks), match_ranks(ranks), saw_windows_only(ranks))
        return RanksPage(_explain_one(request), None, alone)
    if not known:
        if status := describe_status(request.run):
            return RanksPage(Notice("empty", "No rank is behind", status), None)
        reason = f"None of the {len(ranks)} ranks has a step or a batch: {ranks[0].reason}"
        return RanksPage(Notice("empty", "No steps to compare", reason), None)
    compared = _compare(request, ranks)
    if end is not None:
        detail = f"{compared.sentence} {compared.detail}"
        compared = replace(compared, sentence=describe_end(end), detail=detail, tone="bad")
    return RanksPage(None, compared)


def _prepare(run: Run, ranks: Sequence[RankSummary]) -> None:
    """Make what is made of all ranks together, and is kept."""
    judge_run(run, ranks)
    summarize_collectives(ranks)
    find_slow_call(ranks)
    recall_what_if(run, ranks)


def _show_so_far(request: PageRequest, found: SoFar[RankSummary]) -> RanksPage:
    """Show the ranks that were read, without a verdict: one that was not may be the one that all wait for."""
    note_provisional()
    progress = f"{len(found.results):,} of {found.total:,} ranks are read."
    if not any(rank.steps for rank in found.results):
        return RanksPage(Notice("pending", "The ranks are being read …", _LATER), None, progress=progress)
    ranks, verdict = found.results, NotJudged()
    order = order_ranks(ranks, verdict, {}, {"sort": "rank", **request.query})
    comparison = Comparison(
        sentence=_LATER,
        tone="watch",
        stats=list_stats(request.run.manifest, ranks, verdict),
        table=list_rows(order, ranks, verdict, {}),
        charts=build_charts(_choose_drawn(order), {}),
        noun=find_noun(ranks),
        map=build_map(request.run, ranks, order.shown, "own"),
    )
    return RanksPage(None, comparison, progress=progress)


def _explain_one(request: PageRequest) -> Notice:
    world = request.run.manifest.world_size
    if world > 1 and request.run.manifest.source == "kineto":
        reason = (
            f"The job had {world:,} ranks, and the trace of rank {request.ranks[0]} alone was imported. Put those of all "
            "ranks into one folder and import it."
        )
        return Notice("empty", "Only one rank was imported", reason, IMPORT)
    if world > 1:
        reason = (
            f"The run has {world} processes, but only rank {request.ranks[0]} has written its folder here. Give every "
            "rank the same output_path on storage that all of them see."
        )
        return Notice("empty", "Only one rank was recorded", reason, SEVERAL)
    if request.run.manifest.source == "kineto":
        reason = "This trace is of one process. Put the traces of all ranks of a job into one folder and import it."
        return Notice("empty", "One rank", reason, IMPORT)
    reason = "This run has one process. Runs of several processes are set side by side here, without further options."
    return Notice("empty", "One rank", reason, SEVERAL)


def _compare(request: PageRequest, ranks: tuple[RankSummary, ...]) -> Comparison:
    verdict, noun = judge_run(request.run, ranks), find_noun(ranks)
    rows = summarize_collectives(ranks)
    stood = describe_standstills(one for rank in ranks for one in rank.standstills)
    wanted = ranks if sorts_by_device(request.query) else order_ranks(ranks, verdict, {}, request.query).shown
    devices = read_devices(request.run, wanted)
    order = order_ranks(ranks, verdict, devices.times, request.query)
    return Comparison(
        sentence=describe_straggler(verdict, noun),
        detail=" ".join(
            filter(
                None,
                (
                    describe_evidence(verdict, noun),
                    describe_slow_call(find_slow_call(ranks), noun),
                    describe_communication(ranks, rows, verdict),
                    stood,
                ),
            )
        ),
        tone=_choose_tone(verdict),
        stats=list_stats(request.run.manifest, ranks, verdict),
        picture=draw_hold_up(verdict),
        table=list_rows(order, ranks, verdict, devices.times),
        hosts=list_hosts(ranks, verdict),
        hosts_of_all=len({rank.host for rank in ranks if rank.steps}),
        charts=build_charts(_choose_drawn(order), devices.times),
        noun=noun,
        map=build_map(request.run, ranks, order.shown, request.query.get("map", "")),
        collectives=view_collectives(rows, match_ranks(ranks), saw_windows_only(ranks)),
        what_if=view_what_if(recall_what_if(request.run, ranks)),
        notes=_list_notes(request, ranks, verdict, devices.pending),
        example=prefer_detailed(choose_example(ranks), request.run),
    )


def saw_windows_only(ranks: Sequence[RankSummary]) -> bool:
    """Say whether all collectives of the ranks were seen in detailed windows, and none was timed outside of them."""
    return not any(rank.calls is not None and (rank.calls.held_ns >= 0).any() for rank in ranks)


def _choose_drawn(order: Order) -> list[RankSummary]:
    """Return the ranks that stand beside each other in the charts: of very many in another order they would lie apart."""
    apart = order.pages > 1 and order.sort.removeprefix("-") != "rank"
    return [] if apart else sorted(order.shown, key=lambda rank: rank.rank)


def _choose_tone(verdict: RankVerdict) -> str:
    comparison = verdict.comparison
    if verdict.culprits or isinstance(verdict, UnevenWork):
        return "bad"
    if comparison is None:
        return "good" if isinstance(verdict, NotJudged) else "watch"
    is_open = isinstance(verdict, (Unsure, Turns)) or comparison.pause is not None or comparison.is_hidden
    return "watch" if is_open else "good"


def _list_notes(
    request: PageRequest, ranks: Sequence[RankSummary], verdict: RankVerdict, pending: int
) -> tuple[str, ...]:
    notes = []
    if len(request.ranks) > MOST_RANKS:
        notes.append(describe_unread(len(request.ranks)))
    world = request.run.manifest.world_size
    if world > len(request.ranks):
        absent = world - len(request.ranks)
        one = absent == 1
        what = "was not imported" if one else "were not imported"
        if request.run.manifest.source != "kineto":
            what = f"{'has' if one else 'have'} not written anything"
        there = set(request.ranks)
        missing = [rank for rank in range(min(world, MOST_RANKS)) if rank not in there]
        named = f": {format_ranks_named(missing, absent)}" if missing else ""
        notes.append(f"{absent:,} of {format_number_of(world, 'rank')} {what}{named}.")
    if world < len(request.ranks):
        notes.append(f"The run says that it has {format_number_of(world, 'rank')}; {len(request.ranks):,} are here.")
    if pending:
        notes.append(f"The device work of {format_number_of(pending, 'rank')} is still being read; reload in a moment.")
    if isinstance(verdict, NotJudged):
        notes.append("Only one of the ranks has figures.")
    return tuple(notes)


PAGE = Page(slug="ranks", title="Ranks", order=55, key="r", template="ranks.html", build=build)
