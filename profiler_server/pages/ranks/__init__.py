"""The Ranks page: the ranks of a run side by side, which of them is behind and why, and who waited for whom."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_server.analysis.ranks.collectives import match_ranks, summarize_collectives
from profiler_server.analysis.ranks.hang import find_hang
from profiler_server.analysis.ranks.ranks import MOST_RANKS, RankSummary, find_noun, summarize_ranks
from profiler_server.analysis.ranks.stragglers import Judgement, judge_ranks
from profiler_server.analysis.what_if.reading import recall_what_if
from profiler_server.diagnosis.rank_sentences import describe_communication, describe_evidence, describe_straggler
from profiler_server.figures import Chart
from profiler_server.format import format_count, format_number_of
from profiler_server.page import Notice, Page, PageRequest
from profiler_server.pages.ranks.charts import StepMap, build_charts, build_steps, build_work_maps
from profiler_server.pages.ranks.collectives import CollectiveTable, view_collectives
from profiler_server.pages.ranks.devices import read_devices
from profiler_server.pages.ranks.rows import RankTable, list_rows
from profiler_server.pages.ranks.what_if import WhatIfView, view_what_if
from profiler_server.pages.ranks.words import Stat, list_stats

IMPORT = "profiler-server import a-folder-of-traces --summary-base-dir runs"
SEVERAL = """torchrun --nproc-per-node 4 train.py

# in train.py: every rank makes the same call, and writes a folder of its own
profiler = Profiler("runs/my-run")"""


@dataclass(frozen=True)
class Comparison:
    """Everything that the page shows of two ranks or more. `notes` say what is missing from it."""

    sentence: str
    detail: str
    tone: str
    stats: tuple[Stat, ...]
    table: RankTable
    charts: tuple[Chart, ...]
    maps: tuple[StepMap, ...]
    noun: str
    collectives: CollectiveTable | None
    what_if: WhatIfView | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RanksPage:
    """Either a comparison, or a notice that says why there is nothing to compare, with the collectives of the one rank."""

    notice: Notice | None
    comparison: Comparison | None
    alone: CollectiveTable | None = None


def build(request: PageRequest) -> RanksPage:
    """Build the page. `?sort=-own` sorts the table by a column, falling with a dash."""
    hang = find_hang(request.run)
    if hang is not None:
        return RanksPage(Notice("failed", "The job hangs", hang.sentence), None)
    ranks = summarize_ranks(request.run)
    known = [rank for rank in ranks if rank.steps]
    if len(ranks) < 2:
        alone = view_collectives(summarize_collectives(ranks), match_ranks(ranks))
        return RanksPage(_explain_one(request), None, alone)
    if not known:
        reason = f"None of the {len(ranks)} ranks has a step or a batch: {ranks[0].reason}"
        return RanksPage(Notice("empty", "No steps to compare", reason), None)
    return RanksPage(None, _compare(request, ranks))


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
    judged, noun = judge_ranks(ranks), find_noun(ranks)
    straggler = judged.straggler
    rows = summarize_collectives(ranks)
    devices = read_devices(request.run, ranks)
    return Comparison(
        sentence=describe_straggler(judged, noun),
        detail=" ".join(filter(None, (describe_evidence(judged, noun), describe_communication(ranks, rows, judged)))),
        tone=_choose_tone(judged),
        stats=list_stats(request.run.manifest, ranks, judged),
        table=list_rows(ranks, straggler, devices.times, request.query.get("sort", "")),
        charts=build_charts(ranks, devices.times),
        noun=noun,
        maps=(build_steps(ranks), *build_work_maps(request.run, ranks)),
        collectives=view_collectives(rows, match_ranks(ranks)),
        what_if=view_what_if(recall_what_if(request.run)),
        notes=_list_notes(request, judged, devices.pending),
    )


def _choose_tone(judged: Judgement) -> str:
    if judged.straggler is not None and judged.straggler.is_slow:
        return "bad"
    unsure = judged.straggler is not None and judged.straggler.is_unsure
    return "watch" if unsure or judged.rotation is not None or judged.is_hidden else "good"


def _list_notes(request: PageRequest, judged: Judgement, pending: int) -> tuple[str, ...]:
    notes = []
    if len(request.ranks) > MOST_RANKS:
        notes.append(f"The first {MOST_RANKS} of {format_count(len(request.ranks))} ranks are shown.")
    world = request.run.manifest.world_size
    if world > len(request.ranks):
        what = "were not imported" if request.run.manifest.source == "kineto" else "have not written anything"
        notes.append(f"{world - len(request.ranks):,} of {format_number_of(world, 'rank')} {what}.")
    if pending:
        notes.append(f"The device work of {format_number_of(pending, 'rank')} is still being read; reload in a moment.")
    if judged.straggler is None:
        notes.append("Only one of the ranks has figures.")
    return tuple(notes)


PAGE = Page(slug="ranks", title="Ranks", order=55, key="r", template="ranks.html", build=build)
