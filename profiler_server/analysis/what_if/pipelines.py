"""Who holds whom up in a run: of a pipeline its replay tells, because its stages work and wait by turns by design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collector.format.parts import find_files
from collector.format.run import Run
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.analysis.steps.interruptions import read_interruptions
from profiler_server.analysis.what_if.reading import recall_what_if
from profiler_server.analysis.what_if.result import WhatIf
from profiler_server.facts.job import BEHIND_FRAC, SAVING, HeavyStage, Judgement

SAVING_FRAC = 0.5
_OUTSIDE = ("gap", "tail")


def judge_run(run: Run, ranks: Sequence[RankSummary]) -> Judgement:
    """Judge who waits for whom, as the Ranks page, the rules and the report say it."""
    found = _name_saving(run, ranks, judge_ranks(ranks))
    if found.straggler is None or not find_files(run.read_rank(ranks[0].rank).folder, "job_operations"):
        return found
    what_if = recall_what_if(run, ranks)
    if what_if is None or len(what_if.stages) < 2 or what_if.mend_rank_gain_ns is None:
        return found
    return _judge_pipeline(found, what_if, {rank.rank: rank for rank in ranks if rank.steps})


def _name_saving(run: Run, ranks: Sequence[RankSummary], found: Judgement) -> Judgement:
    """Name checkpoints as what makes a rank late where they take most of what it is late by, outside of its training."""
    straggler = found.straggler
    if straggler is None or not straggler.is_slow or not straggler.causes or straggler.causes[0].name not in _OUTSIDE:
        return found
    saved_ns = int(read_interruptions(run.read_rank(straggler.rank)).of_kind("checkpoint").duration_ns.sum())
    steps = next(rank.steps for rank in ranks if rank.rank == straggler.rank)
    first = straggler.causes[0]
    if saved_ns / steps < SAVING_FRAC * first.excess_ns:
        return found
    causes = (replace(first, name=SAVING), *straggler.causes[1:])
    return replace(found, straggler=replace(straggler, causes=causes))


def _judge_pipeline(found: Judgement, what_if: WhatIf, ranks: dict[int, RankSummary]) -> Judgement:
    """Set each rank beside the replicas of its stage, and say what the replay gains without it."""
    stages = [[ranks[number] for number in stage if number in ranks] for stage in what_if.stages]
    within = [judged for stage in stages if (judged := judge_ranks(stage)).straggler is not None]
    gains = what_if.mend_rank_gain_ns or {}
    known = replace(
        found,
        stages=len(stages),
        rotation=None,
        also_slow=(),
        blame_ns={number: max(gains.get(number, 0.0), 0.0) for number in ranks},
        last_frac={number: share for judged in within for number, share in (judged.last_frac or {}).items()},
        least_frac=max((judged.least_frac or 0.0 for judged in within), default=None),
    )
    stragglers = [judged.straggler for judged in within if judged.straggler is not None]
    if not stragglers:
        nobody = replace(known.straggler, is_slow=False, is_unsure=False) if known.straggler is not None else None
        return replace(known, straggler=nobody, heavy_stage=_find_heavy_stage(found, what_if, stages))
    worst = max(stragglers, key=lambda one: (one.is_slow, one.late_frac))
    straggler = replace(worst, gain_ns=max(gains.get(worst.rank, 0.0), 0.0), others=len(ranks) - 1)
    return replace(
        known, straggler=straggler, heavy_stage=None if worst.is_slow else _find_heavy_stage(found, what_if, stages)
    )


def _find_heavy_stage(found: Judgement, what_if: WhatIf, stages: Sequence[Sequence[RankSummary]]) -> HeavyStage | None:
    """Return the stage that alone makes the job slower by BEHIND_FRAC or more, None where none does."""
    # The share of the replayed steps, so that the page says it once: these are a little shorter than the measured ones.
    by_stage, gain_ns = what_if.by_stage or {}, (what_if.waste_frac or 0.0) * found.step_ns
    if not by_stage or gain_ns <= 0:
        return None
    stage = max(by_stage, key=lambda number: by_stage[number])
    own = [[rank.own_ns for rank in members] for members in stages]
    others = [value for number, values in enumerate(own) for value in values if number != stage]
    if by_stage[stage] - 1.0 < BEHIND_FRAC or not own[stage] or not others:
        return None
    own_ns, others_ns = sum(own[stage]) / len(own[stage]), sum(others) / len(others)
    return HeavyStage(stage, tuple(rank.rank for rank in stages[stage]), own_ns, others_ns, gain_ns)
