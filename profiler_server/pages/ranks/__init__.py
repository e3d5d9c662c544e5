"""The Ranks page: all ranks side by side, the rank that is behind and the reason, and which rank waited for which.

The page is made from facts alone. `asking.py` reads these facts from a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from collector.format.schema.wording import format_ranks_named
from profiler_server.diagnosis.rank_sentences import (
    describe_communication,
    describe_evidence,
    describe_slow_call,
    describe_straggler,
    describe_unread,
)
from profiler_server.facts.job import NotJudged, RankVerdict, Turns, UnevenWork, Unsure
from profiler_server.facts.ranks import MOST_RANKS, Compared, Example, JobFacts, find_noun
from profiler_server.figures.charts import Chart
from profiler_server.format import format_number_of
from profiler_server.notice import Notice, Page
from profiler_server.pages.ranks.head import WhatIfView, list_stats, view_what_if
from profiler_server.pages.ranks.pictures import StepMap, build_charts, build_map, choose_figure
from profiler_server.pages.ranks.tables import (
    CollectiveTable,
    Order,
    RankTable,
    list_rows,
    order_ranks,
    view_collectives,
)
from profiler_server.widgets import Stat

IMPORT = "stepscope import a-folder-of-traces --summary-base-dir runs"
_LATER = "When all ranks are read, this page shows which of them holds the others up."
SEVERAL = """torchrun --nproc-per-node 4 train.py

# in train.py: every rank makes the same call, and writes a folder of its own
profiler = Profiler("runs/my-run")"""


@dataclass(frozen=True)
class Comparison:
    """The content for two or more ranks. `tone` rates the verdict: good, watch or bad. `notes` are sentences on missing
    data. `example` has the ranks that the link to a common timeline shows, None for no link."""

    sentence: str
    tone: str
    stats: tuple[Stat, ...]
    table: RankTable
    charts: tuple[Chart, ...]
    map: StepMap
    noun: str
    detail: str = ""
    collectives: CollectiveTable | None = None
    what_if: WhatIfView | None = None
    notes: tuple[str, ...] = ()
    example: Example | None = None


@dataclass(frozen=True)
class RanksPage:
    """A comparison, or a notice on why there is none. `alone` has the collectives of a single rank, None for several.

    `progress` is a sentence on the number of ranks read so far; it is "" once all ranks are read.
    """

    notice: Notice | None
    comparison: Comparison | None
    alone: CollectiveTable | None = None
    progress: str = ""


def build(job: JobFacts) -> RanksPage:
    """Build the page from the facts of the job.

    In the URL, `?sort=-own` sorts the ranks by a column, descending with the dash. `?map=wait` chooses the figure of
    the map. `?page=` chooses a page if there are very many ranks.
    """
    end, ranks = job.end, job.ranks
    if end is not None and (end.is_hang or (job.is_whole and job.compared is None)):
        return RanksPage(Notice("failed", end.title, end.sentence), None)
    if not job.is_whole:
        return _show_so_far(job)
    if len(ranks) < 2:
        return RanksPage(_explain_one(job), None, view_collectives(job.collectives))
    if job.compared is None:
        if job.status:
            return RanksPage(Notice("empty", "No rank is behind", job.status), None)
        reason = f"None of the {len(ranks)} ranks has a step or a batch: {ranks[0].reason}"
        return RanksPage(Notice("empty", "No steps to compare", reason), None)
    found = _compare(job, job.compared)
    if end is not None:
        told = (end.sentence[len(end.headline) :].strip(), found.sentence, found.detail)
        found = replace(found, sentence=end.headline, detail=" ".join(filter(None, told)), tone="bad")
    return RanksPage(None, found)


def _show_so_far(job: JobFacts) -> RanksPage:
    """Return the page of the ranks read so far. It has no verdict, because the rank for which all others wait may still
    be unread.
    """
    progress = f"{len(job.ranks):,} of {job.wanted:,} ranks are read."
    if job.compared is None:
        return RanksPage(Notice("pending", "The ranks are being read …", _LATER), None, progress=progress)
    order = order_ranks(job.ranks, job.compared.verdict, {}, {"sort": "rank", **job.query})
    found = _lay_out(job, job.compared, order, "own")
    # The number of ranks is in `progress`, which goes on while the rest of the page stays as it is.
    return RanksPage(None, replace(found, stats=found.stats[1:]), progress=progress)


def _lay_out(job: JobFacts, found: Compared, order: Order, figure: str) -> Comparison:
    """Return the parts of the comparison that may be shown before all ranks are read. `figure` is a key of the map."""
    noun = find_noun(job.ranks)
    # Ranks that fill several pages are drawn only in the order of their numbers.
    is_drawn = order.pages == 1 or order.sort.removeprefix("-") == "rank"
    drawn = sorted(order.shown, key=lambda rank: rank.rank) if is_drawn else []
    return Comparison(
        sentence=_LATER,
        tone="watch",
        stats=list_stats(job.world_size, job.ranks, found),
        table=list_rows(order, job.ranks, found),
        charts=build_charts(drawn, found.devices),
        noun=noun,
        map=build_map(found.grid, figure, noun, len(order.shown), len(job.ranks)),
    )


def _explain_one(job: JobFacts) -> Notice:
    world = job.world_size
    if world > 1 and job.is_trace:
        reason = (
            f"The job had {world:,} ranks, and the trace of rank {job.numbers[0]} alone was imported. Put those of all "
            "ranks into one folder and import it."
        )
        return Notice("empty", "Only one rank was imported", reason, IMPORT)
    if world > 1:
        reason = (
            f"The run has {world} processes, but only rank {job.numbers[0]} has written its folder here. Give every "
            "rank the same output_path on storage that all of them see."
        )
        return Notice("empty", "Only one rank was recorded", reason, SEVERAL)
    if job.is_trace:
        reason = "This trace is of one process. Put the traces of all ranks of a job into one folder and import it."
        return Notice("empty", "One rank", reason, IMPORT)
    reason = "This run has one process. Runs of several processes are set side by side here, without further options."
    return Notice("empty", "One rank", reason, SEVERAL)


def _compare(job: JobFacts, found: Compared) -> Comparison:
    ranks, verdict = job.ranks, found.verdict
    noun = find_noun(ranks)
    details = (
        describe_evidence(verdict, noun),
        describe_slow_call(found.slow_call, noun),
        describe_communication(ranks, job.collectives.rows, verdict),
        found.standstills,
    )
    return replace(
        _lay_out(job, found, order_ranks(ranks, verdict, found.devices, job.query), choose_figure(job.query)),
        sentence=describe_straggler(verdict, noun),
        detail=" ".join(filter(None, details)),
        tone=_choose_tone(verdict),
        collectives=view_collectives(job.collectives),
        what_if=view_what_if(found.slowdown),
        notes=tuple(_list_notes(job, found)),
        example=found.example,
    )


def _choose_tone(verdict: RankVerdict) -> str:
    comparison = verdict.comparison
    if verdict.culprits or isinstance(verdict, UnevenWork):
        return "bad"
    if comparison is None:
        return "good" if isinstance(verdict, NotJudged) else "watch"
    is_open = isinstance(verdict, (Unsure, Turns)) or comparison.pause is not None or comparison.is_hidden
    return "watch" if is_open else "good"


def _list_notes(job: JobFacts, found: Compared) -> Iterator[str]:
    there, world = len(job.numbers), job.world_size
    if there > MOST_RANKS:
        yield describe_unread(there)
    if world > there:
        absent = world - there
        what = "was not imported" if absent == 1 else "were not imported"
        if not job.is_trace:
            what = f"{'has' if absent == 1 else 'have'} not written anything"
        known = set(job.numbers)
        missing = [rank for rank in range(min(world, MOST_RANKS)) if rank not in known]
        named = f": {format_ranks_named(missing, absent)}" if missing else ""
        yield f"{absent:,} of {format_number_of(world, 'rank')} {what}{named}."
    if world < there:
        yield f"The run says that it has {format_number_of(world, 'rank')}; {there:,} are here."
    if found.pending:
        yield f"The device work of {format_number_of(found.pending, 'rank')} is still being read; reload in a moment."
    if isinstance(found.verdict, NotJudged):
        yield "Only one of the ranks has figures."


PAGE = Page(slug="ranks", title="Ranks", order=55, key="r", template="ranks.html", build=build)
