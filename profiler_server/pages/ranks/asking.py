"""The facts of the Ranks page, read from a run: which rank waits for which, the collectives, and the device times.

Large traces are read in the background. Until all are read, the page shows the facts that are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial

from collector.format.run import Run
from collector.hangs.recorded import describe_standstills
from profiler_server.analysis.ranks.collectives import find_slow_call, list_collectives, summarize_collectives
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.ranks.ends import Hang
from profiler_server.analysis.ranks.grids import grid_figure
from profiler_server.analysis.ranks.hang import describe_status
from profiler_server.analysis.ranks.one_clock import choose_example, prefer_detailed
from profiler_server.analysis.ranks.ranks import RankSummary, peek_ranks, read_device
from profiler_server.analysis.ranks.stragglers import measure_own
from profiler_server.analysis.what_if.pipelines import judge_run, recall_what_if
from profiler_server.derive.background import Background, note_provisional
from profiler_server.derive.store import find_store
from profiler_server.diagnosis.end_sentences import describe_end, head_end, name_title
from profiler_server.facts.job import NotJudged
from profiler_server.facts.machine import DeviceTimes
from profiler_server.facts.ranks import MOST_RANKS, Compared, Ended, JobFacts, RankFigures
from profiler_server.page import PageRequest
from profiler_server.pages.ranks.pictures import choose_figure
from profiler_server.pages.ranks.tables import order_ranks, sorts_by_device

PATIENCE_S = 1.0


def ask(request: PageRequest) -> JobFacts:
    """Return the facts of the ranks that are read so far. Ranks that are still being read are left out."""
    run, end = request.run, find_end(request.run)
    job = JobFacts(
        query=request.query,
        numbers=request.ranks,
        world_size=run.manifest.world_size,
        is_trace=run.manifest.is_imported,
        end=Ended(name_title(end), describe_end(end), head_end(end), isinstance(end, Hang))
        if end is not None
        else None,
    )
    if job.end is not None and job.end.is_hang:
        return job
    found = peek_ranks(run, partial(_prepare, run))
    job = replace(job, ranks=found.results, wanted=found.total, is_whole=found.is_whole)
    is_known = any(rank.steps for rank in found.results)
    if not found.is_whole:
        note_provisional()
        return replace(job, compared=_look(run, found.results, job.query) if is_known else None)
    if len(found.results) > 1 and not is_known:
        return replace(job, status=describe_status(run) if end is None else "")
    collectives = list_collectives(found.results)
    compared = _compare(run, found.results, job.query) if len(found.results) > 1 else None
    return replace(job, collectives=collectives, compared=compared)


def _prepare(run: Run, ranks: Sequence[RankSummary]) -> None:
    """Call every computation over all ranks once, so that the page finds the results in the store."""
    judge_run(run, ranks)
    summarize_collectives(ranks)
    find_slow_call(ranks)
    recall_what_if(run, ranks)


def _look(run: Run, ranks: Sequence[RankSummary], query: Mapping[str, str]) -> Compared:
    """Return own work and map of the ranks read so far. The verdict is NotJudged, because it needs all ranks."""
    shown = order_ranks(ranks, NotJudged(), {}, {"sort": "rank", **query}).shown
    return Compared(NotJudged(), measure_own(ranks), grid_figure(run, ranks, _pick(ranks, shown), "own"))


def _compare(run: Run, ranks: Sequence[RankSummary], query: Mapping[str, str]) -> Compared:
    verdict = judge_run(run, ranks)
    wanted = ranks if sorts_by_device(query) else order_ranks(ranks, verdict, {}, query).shown
    devices, pending = read_devices(run, wanted)
    shown = order_ranks(ranks, verdict, devices, query).shown
    return Compared(
        verdict=verdict,
        own_ns=measure_own(ranks, verdict.comparison.pause if verdict.comparison is not None else None),
        grid=grid_figure(run, ranks, _pick(ranks, shown), choose_figure(query)),
        devices=devices,
        pending=pending,
        slow_call=find_slow_call(ranks),
        slowdown=recall_what_if(run, ranks),
        standstills=describe_standstills(one for rank in ranks for one in rank.standstills),
        example=prefer_detailed(choose_example(ranks), run),
    )


def _pick(ranks: Sequence[RankSummary], shown: Sequence[RankFigures]) -> list[RankSummary]:
    by_number = {rank.rank: rank for rank in ranks}
    return [by_number[rank.rank] for rank in shown]


def read_devices(run: Run, ranks: Sequence[RankFigures]) -> tuple[dict[int, DeviceTimes], int]:
    """Return the device times by rank, after waiting up to PATIENCE_S; ranks without steps or a device are left out.

    Also return the number of ranks whose device times are still being read in the background.
    """
    wanted = [run.read_rank(rank.rank) for rank in ranks if rank.steps and rank.has_device]
    readers = find_store().part(_make_readers)
    started = {rank.rank: readers.start(rank.key, partial(read_device, rank)) for rank in wanted}
    futures = {rank: future for rank, future in started.items() if future is not None}
    done, _ = wait(futures.values(), PATIENCE_S)
    times = {rank: found for rank, future in futures.items() if future in done and (found := future.result())}
    return times, len(started) - len(done)


def _make_readers() -> Background:
    """Return the background threads that read device times. The page itself waits PATIENCE_S for these threads."""
    return Background(threads=2, head_start=False, most_waiting=2 * MOST_RANKS)
