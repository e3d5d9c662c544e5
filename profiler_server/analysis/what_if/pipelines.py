"""The time that a job would take with ranks that are alike, and which rank delays which.

A pipeline needs a replay, because its stages work and wait in turns by design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from collector.format.parts import find_files
from collector.format.phases import COMMUNICATION, OUTSIDE, PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import decide_verdict, judge_ranks
from profiler_server.analysis.ranks.together import RankSteps, put_together
from profiler_server.analysis.steps.interruptions import read_interruptions
from profiler_server.analysis.what_if.operations import ScheduleError, build_job
from profiler_server.analysis.what_if.replay import replay_job
from profiler_server.analysis.what_if.steps import weigh_steps
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.facts import BEHIND_FRAC, MOST_FRAC
from profiler_server.facts.job import (
    BETWEEN,
    SAVING,
    Alike,
    HeavyStage,
    RankComparison,
    RankVerdict,
    Slow,
    UnevenWork,
    Unsure,
)
from profiler_server.facts.ranks import JobSlowdown


@derived(reads=lambda run, ranks: (run, *((rank.rank, rank.together) for rank in ranks if rank.steps)))
def recall_what_if(run: Run, ranks: Sequence[RankSummary]) -> JobSlowdown | None:
    """Return the slowdown of a job against one whose ranks are alike, over all steps of the ranks; None for one rank.

    If a trace has the operations of a job, these are replayed. Otherwise the steps are compared. Unreadable ranks
    are left out.
    """
    if len(run.ranks) < 2:
        return None
    operations = _read_operations([run.read_rank(rank) for rank in run.ranks])
    if operations is None:
        return weigh_ranks({rank.rank: rank.together for rank in ranks if rank.steps})
    job = build_job(operations)
    if job is None:
        return JobSlowdown(
            method="replay", reason="No step has every operation of every rank, so none can be replayed."
        )
    try:
        return replay_job(job)
    except ScheduleError as error:
        return JobSlowdown(method="replay", reason=f"The operations are not those of a pipeline: {error}.")


def _read_operations(ranks: list[RankRun]) -> pa.Table | None:
    tables = []
    for rank in ranks:
        try:
            if rank.status("job_operations").state != "there":
                return None
            table = rank.table("job_operations")
        except RunError:
            return None
        tables.append(table.append_column("rank", pa.array(np.full(table.num_rows, rank.rank))))
    return pa.concat_tables(tables).unify_dictionaries()


def weigh_ranks(steps: Mapping[int, RankSteps]) -> JobSlowdown:
    """Return the slowdown of a job by the common steps of its ranks, without ranks that were cut short."""
    together = put_together(steps)
    phases = {name: together.parts_ns[at] for at, name in enumerate(PHASE_NAMES) if at != COMMUNICATION}
    phases[BETWEEN] = together.between_ns
    return weigh_steps(np.array(together.ranks, np.int64), together.step_ns, together.held_ns, phases)


def judge_run(run: Run, ranks: Sequence[RankSummary]) -> RankVerdict:
    """Return the verdict on which rank delays which, for the Ranks page, the rules and the report."""
    found = _name_saving(run, ranks, judge_ranks(ranks))
    if found.comparison is None or not find_files(run.read_rank(ranks[0].rank).folder, "job_operations"):
        return found
    what_if = recall_what_if(run, ranks)
    if what_if is None or len(what_if.stages) < 2 or what_if.mend_rank_gain_ns is None:
        return found
    return _judge_pipeline(found.comparison, what_if, {rank.rank: rank for rank in ranks if rank.steps})


def _name_saving(run: Run, ranks: Sequence[RankSummary], found: RankVerdict) -> RankVerdict:
    """Return the verdict `found`. If a rank is late mostly outside of training because it saves checkpoints, the
    verdict names checkpoints as the cause.
    """
    if not isinstance(found, Slow):
        return found
    latest = found.comparison.latest
    if not latest.causes or latest.causes[0].name not in OUTSIDE:
        return found
    saved_ns = int(read_interruptions(run.read_rank(latest.rank)).of_kind("checkpoint").duration_ns.sum())
    steps = next(rank.steps for rank in ranks if rank.rank == latest.rank)
    first = latest.causes[0]
    if saved_ns / steps < MOST_FRAC * first.excess_ns:
        return found
    latest = replace(latest, causes=(replace(first, name=SAVING), *latest.causes[1:]))
    return replace(found, comparison=replace(found.comparison, latest=latest))


def _judge_pipeline(found: RankComparison, what_if: JobSlowdown, ranks: dict[int, RankSummary]) -> RankVerdict:
    """Return the verdict on a pipeline. Each rank is compared with the replicas of its own stage. Gains come from the
    replay.
    """
    stages = [[ranks[number] for number in stage if number in ranks] for stage in what_if.stages]
    judged = [judge_ranks(stage) for stage in stages]
    within = [(one, one.comparison) for one in judged if one.comparison is not None]
    gains = {number: max((what_if.mend_rank_gain_ns or {}).get(number, 0.0), 0.0) for number in ranks}
    whole = replace(
        found,
        stages=len(stages),
        blame_ns=gains,
        last_frac={number: share for _, own in within for number, share in own.last_frac.items()},
        least_frac=max((own.least_frac or 0.0 for _, own in within), default=None),
    )
    within.sort(key=lambda one: -one[1].latest.late_frac)
    verdicts = [_place(whole, one, own) for one, own in within] or [Alike(whole)]
    return decide_verdict([*verdicts, *_find_causes(verdicts[0].comparison, what_if, stages)])


def _place(whole: RankComparison, one: RankVerdict, own: RankComparison) -> Slow | Unsure | Alike:
    latest = replace(own.latest, gain_ns=whole.blame_ns[own.latest.rank])
    placed = replace(whole, latest=latest)
    if latest.rank in one.culprits:
        return Slow(placed, longest=one.longest if isinstance(one, Slow) else None)
    return Unsure(placed) if isinstance(one, Unsure) else Alike(placed)


def _find_causes(
    whole: RankComparison, what_if: JobSlowdown, stages: Sequence[Sequence[RankSummary]]
) -> Iterator[HeavyStage | UnevenWork]:
    # The share of the replayed steps, so that the page says it once: these are a little shorter than the measured ones.
    if what_if.even_work_frac >= BEHIND_FRAC:
        yield UnevenWork(whole, what_if.even_work_frac * whole.step_ns)
    own = [[rank.own_ns for rank in members] for members in stages]
    if what_if.even_stages_frac < BEHIND_FRAC or not all(own):
        return
    means = [sum(values) / len(values) for values in own]
    stage = max(range(len(means)), key=lambda number: means[number])
    others = [value for number, values in enumerate(own) for value in values if number != stage]
    heavy = tuple(rank.rank for rank in stages[stage])
    gain_ns = what_if.even_stages_frac * whole.step_ns
    yield HeavyStage(whole, stage, heavy, means[stage], sum(others) / len(others), gain_ns)
