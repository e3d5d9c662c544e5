"""The rank that the others wait for, the certainty of this verdict, and the cause. Rules and pages share the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.ranks.collectives import match_ranks
from profiler_server.analysis.ranks.lateness import Lateness, measure_calls, measure_steps
from profiler_server.analysis.ranks.patterns import (
    find_causes,
    find_handover,
    find_pause,
    find_starvation,
    find_stretch,
    find_turns,
    find_uneven_work,
    weigh_garbage,
    weigh_longest,
)
from profiler_server.analysis.ranks.ranks import OWN_PHASES, RankSummary
from profiler_server.analysis.ranks.together import StepsTogether, put_together
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits import stragglers as limits
from profiler_server.diagnosis.limits.facts import MOST_FRAC, SLOW_RANK_FRAC
from profiler_server.facts.job import (
    Alike,
    Apart,
    Handover,
    HeavyStage,
    LateRank,
    NotJudged,
    Pause,
    RankComparison,
    RankVerdict,
    Slow,
    Strangers,
    Turns,
    UnevenWork,
    Unsure,
)

PRECEDENCE: tuple[tuple[type[RankVerdict], ...], ...] = (
    (Apart,),
    (Strangers,),
    (NotJudged,),
    (Handover,),
    (Slow,),
    (HeavyStage, UnevenWork),
    (Turns,),
    (Unsure,),
    (Alike,),
)
"""The first verdict in this order wins. If two causes of a pipeline hold, the cause with the larger gain wins."""
_PLACES: Mapping[type[RankVerdict], int] = {kind: at for at, kinds in enumerate(PRECEDENCE) for kind in kinds}


def decide_verdict(found: Iterable[RankVerdict]) -> RankVerdict:
    """Return the verdict whose kind has the highest priority. Of several such verdicts, the one with the largest gain
    counts.
    """
    return min(found, key=lambda one: (_PLACES[type(one)], -one.gain_ns))


def judge_ranks(ranks: Sequence[RankSummary]) -> RankVerdict:
    """Return the verdict on which rank the others wait for."""
    return _recall(ranks)[0]


def measure_waits(ranks: Sequence[RankSummary]) -> tuple[tuple[int, ...], Ints, Floats] | None:
    """Return ranks, steps, and the wait for the last rank in ns as (ranks, steps); None if the lateness is unknown."""
    lateness = _recall(ranks)[1]
    if lateness is None:
        return None
    step, late = lateness.sum_by_step()
    return lateness.ranks, step, late.max(axis=0, keepdims=True) - late


def measure_own(ranks: Sequence[RankSummary], pause: Pause | None = None) -> dict[int, float]:
    """Return the own work of each rank in the mean step, in ns, with the work between steps that other ranks do not
    have.

    Steps of `pause` are left out."""
    if pause is not None:
        together = put_together({rank.rank: rank.together for rank in ranks}).drop(pause.steps)
        own = together.own_ns.mean(axis=1).tolist() if len(together.step) else []
        return {rank.rank: rank.own_ns for rank in ranks} | dict(zip(together.ranks, own, strict=False))
    between = {rank.rank: float(rank.together.between_ns.mean()) for rank in ranks if len(rank.together.between_ns)}
    least = min(between.values(), default=0.0)
    return {rank.rank: rank.own_ns + between.get(rank.rank, least) - least for rank in ranks}


def _recall(ranks: Sequence[RankSummary]) -> tuple[RankVerdict, Lateness | None]:
    known = [rank for rank in ranks if rank.steps]
    return _judge(known) if len(known) > 1 else (NotJudged(), None)


@derived(reads=lambda ranks: tuple((rank.together, rank.calls) for rank in ranks))
def _judge(ranks: Sequence[RankSummary]) -> tuple[RankVerdict, Lateness | None]:
    matched = match_ranks(ranks)
    parted: list[RankVerdict] = [Apart(matched.apart_ns)] if matched.apart_ns else []
    parted += [matched.strangers] if matched.strangers is not None else []
    if parted:
        return decide_verdict(parted), None
    together = put_together({rank.rank: rank.together for rank in ranks})
    lateness = _choose(ranks, together)
    missing = tuple(rank.rank for rank in ranks if lateness is None or rank.rank not in set(lateness.ranks))
    if lateness is None or len(lateness.ranks) < 2:
        return NotJudged(missing), None
    judged = [rank for rank in ranks if rank.rank in set(lateness.ranks)]
    return _judge_lateness(judged, lateness, together, missing), lateness


def _choose(ranks: Sequence[RankSummary], together: StepsTogether) -> Lateness | None:
    """Return the lateness measured by collectives or by steps; None if both are unknown.

    Collectives are used if they cover enough of the steps, or if the steps do not show waiting. Otherwise steps are
    better: only some of DDP's reductions are recorded, and an outlier among few would get too much weight. Also, a rank
    with too few recorded collectives could never be found slow.
    """
    by_steps = None
    if len(together.ranks) > 1 and len(together.step):
        by_steps = _measure_by_steps(together)
    found = measure_calls(match_ranks(ranks))
    if found is None:
        return by_steps
    first = min(int(rank.together.step[0]) for rank in ranks)
    unusual = np.unique(np.concatenate([rank.unusual for rank in ranks]))
    found = found.choose({rank.rank for rank in ranks})
    usual = found.drop_unusual(first, unusual)
    found = usual if len(usual.step) else found.drop_unusual(first, unusual[:0])
    covered = len(np.unique(found.step)) >= max(limits.LEAST_MEETINGS, MOST_FRAC * len(together.step))
    is_enough = covered or all(rank.state == "imported" for rank in ranks)
    is_seen = by_steps is not None and bool(together.held_ns.any())
    is_whole = set(together.ranks) <= found.compared and _explain_waiting(ranks, together, found.step)
    return found if len(found.step) and ((is_enough and is_whole) or not is_seen) else by_steps


def _explain_waiting(ranks: Sequence[RankSummary], together: StepsTogether, steps: Ints) -> bool:
    """Return whether the recorded collectives explain the waiting of the ranks.

    An asynchronous collective that waits in C++, as `Join` does, is recorded without its wait.
    """
    if all(rank.state == "imported" for rank in ranks):
        return True
    shared = together.step[np.isin(together.step, steps)]
    held = float(together.held_ns[:, np.isin(together.step, shared)].sum())
    calls = [rank.calls for rank in ranks if rank.calls is not None and rank.rank in together.ranks]
    waited = sum(int(own.waiting_ns[np.isin(own.step, shared)].sum()) for own in calls)
    return waited >= limits.EXPLAINED_FRAC * held


def _measure_by_steps(together: StepsTogether) -> Lateness:
    """Return the lateness, with steps as meetings.

    If known for enough steps, the end of a step is the time at which the ranks leave its last collective. Work of a
    rank after this collective then makes the rank late in the next step.
    """
    held, meeting = together.held_ns, together.meeting_ns
    known = np.flatnonzero(np.isfinite(meeting).all(axis=0))
    if len(known) >= max(limits.LEAST_MEETINGS, MOST_FRAC * len(together.step)):
        own = meeting[:, known] - held[:, known]
        return measure_steps(together.ranks, together.step[known], own, held[:, known])
    return measure_steps(together.ranks, together.step, together.own_ns, held)


def _judge_lateness(
    ranks: Sequence[RankSummary], lateness: Lateness, together: StepsTogether, missing: tuple[int, ...]
) -> RankVerdict:
    step_ns = float(np.mean([rank.step_ns for rank in ranks]))
    is_hidden = lateness.source == "steps" and not together.held_ns.any()
    pause = None if is_hidden else find_pause(lateness, together, step_ns)
    if pause is not None:
        lateness, together = lateness.drop(pause.steps), together.drop(pause.steps)
        ranks = [_average_again(rank, together) for rank in ranks]
    found = _weigh(ranks, lateness, together)
    comparison = replace(_compare(found), is_hidden=is_hidden, left_out=missing, pause=pause)
    return decide_verdict(_list_verdicts(found, comparison))


def _average_again(rank: RankSummary, together: StepsTogether) -> RankSummary:
    if rank.rank not in together.ranks or not len(together.step):
        return rank
    row = together.ranks.index(rank.rank)
    phases = dict(zip(PHASE_NAMES, together.parts_ns[:, row].mean(axis=1).tolist(), strict=True))
    own, step = float(together.own_ns[row].mean()), float(together.step_ns[row].mean())
    return replace(rank, own_ns=own, step_ns=step, phases_ns=phases)


@dataclass(frozen=True, eq=False)
class _Weighed:
    """The lateness of the ranks at each step, (ranks, steps), and whether it exceeds chance. `row` is the latest rank.

    `least_ns` is the smallest lateness that is reported. `longest` is set if only the long waits make the result
    certain: the number of long waits in which the latest rank was last, and the number of all long waits.
    """

    ranks: Sequence[RankSummary]
    lateness: Lateness
    together: StepsTogether
    step_ns: float
    steps: Ints
    late_ns: Floats
    row: int
    last_frac: Floats
    least_ns: float
    is_far: bool
    is_sure: bool
    longest: tuple[int, int] | None

    @property
    def is_slow(self) -> bool:
        return self.is_far and self.is_sure

    @property
    def also_slow(self) -> tuple[int, ...]:
        if not self.is_slow or len(self.ranks) < limits.LEAST_RANKS:
            return ()
        usual = np.median(self.late_ns, axis=1) > self.least_ns
        return tuple(rank.rank for at, rank in enumerate(self.ranks) if usual[at] and at != self.row)


def _weigh(ranks: Sequence[RankSummary], lateness: Lateness, together: StepsTogether) -> _Weighed:
    step_ns = float(np.mean([rank.step_ns for rank in ranks]))
    steps, late = lateness.sum_by_step()
    row = int(np.argmax(late.mean(axis=1)))
    last = np.bincount(np.argmax(late, axis=0), minlength=len(ranks)) / len(steps)
    error = float(np.median(late.std(axis=1))) / float(np.sqrt(len(steps)))
    is_many = len(ranks) >= limits.LEAST_RANKS
    outlying = limits.OUTLYING_DEVIATIONS * _measure_deviation(late, step_ns) if is_many else -np.inf
    against = _measure_against(late, row)
    is_far = float(against.mean()) >= SLOW_RANK_FRAC * step_ns
    outlies = float(np.median(against)) > outlying or float(last[row]) >= MOST_FRAC
    is_often = outlies and _is_sure(against)
    longest = weigh_longest(late, row) if is_far and not is_often else None
    return _Weighed(
        ranks,
        lateness,
        together,
        step_ns,
        steps,
        late,
        row,
        last,
        least_ns=max(SLOW_RANK_FRAC * step_ns, limits.SURE_ERRORS * error, outlying),
        is_far=is_far,
        is_sure=is_often or longest is not None,
        longest=longest,
    )


def _measure_deviation(late_ns: Floats, step_ns: float) -> float:
    """Return the robust standard deviation of the ranks' median lateness in ns. It is at least `LEAST_DEVIATION_FRAC`
    of the step.
    """
    usual = np.median(late_ns, axis=1)
    deviation = 1.4826 * float(np.median(np.abs(usual - np.median(usual))))
    return max(deviation, limits.LEAST_DEVIATION_FRAC * step_ns)


def _measure_against(late_ns: Floats, row: int) -> Floats:
    against: Floats = late_ns[row] - np.median(np.delete(late_ns, row, axis=0), axis=0)
    return against


def _is_sure(against_ns: Floats) -> bool:
    """Return whether a rank's lateness exceeds chance, in its mean or in the number of late steps.

    If steps vary much, their mean can hide a delay that the number of late steps shows.
    """
    steps = len(against_ns)
    error = float(against_ns.std()) / float(np.sqrt(steps))
    often = int((against_ns > 0).sum()) - steps / 2 > limits.SURE_ERRORS * float(np.sqrt(steps)) / 2
    return bool(float(against_ns.mean()) > limits.SURE_ERRORS * error or often)


def _list_verdicts(found: _Weighed, comparison: RankComparison) -> list[RankVerdict]:
    verdicts: list[RankVerdict] = [Alike(comparison)]
    if found.is_far:
        verdicts.append(_name_slow(found, comparison) if found.is_sure else Unsure(comparison))
    handover = find_handover(comparison, found.lateness.ranks, found.steps, found.late_ns)
    starved_ns = float(np.mean([rank.starved_frac * rank.step_ns for rank in found.ranks]))
    turns = find_turns(comparison, found.lateness, found.late_ns, found.together, starved_ns)
    return [*verdicts, *(one for one in (handover, turns) if one is not None)]


def _name_slow(found: _Weighed, comparison: RankComparison) -> Slow:
    stretch = None
    if not (found.also_slow or comparison.is_hidden):
        stretch = find_stretch(found.steps, _measure_against(found.late_ns, found.row), found.step_ns)
    return Slow(comparison, found.also_slow, found.longest, stretch)


def _compare(found: _Weighed) -> RankComparison:
    lateness, steps, held = found.lateness, len(found.steps), found.together.held_ns
    blame = lateness.sum_blame() / steps
    return RankComparison(
        latest=_describe(found),
        source=lateness.source,
        meetings=len(lateness.step),
        steps=steps,
        step_ns=found.step_ns,
        blame_ns=dict(zip(lateness.ranks, blame.tolist(), strict=True)),
        last_frac=dict(zip(lateness.ranks, found.last_frac.tolist(), strict=True)),
        least_frac=found.least_ns / found.step_ns if found.step_ns else None,
        residual_ns=lateness.residual_ns,
        transfer_ns=float(held.min(axis=0).mean()) if held.size else None,
        uneven_correlation=find_uneven_work(found.together),
        garbage=weigh_garbage(found.together),
    )


def _describe(found: _Weighed) -> LateRank:
    slow, others = found.ranks[found.row], [rank for at, rank in enumerate(found.ranks) if at != found.row]
    excess = float(_measure_against(found.late_ns, found.row).mean())
    middle = float(np.median([rank.own_ns for rank in others]))
    starved = float(np.median([rank.starved_frac * rank.step_ns for rank in others]))
    phases = {name: float(np.median([rank.phases_ns[name] for rank in others])) for name in PHASE_NAMES}
    phase = max(OWN_PHASES, key=lambda name: slow.phases_ns[name] - phases[name])
    return LateRank(
        rank=slow.rank,
        own_ns=middle + excess,
        others_ns=middle,
        phase=phase,
        phase_ns=slow.phases_ns[phase],
        phase_others_ns=phases[phase],
        others=len(others),
        late_frac=excess / found.step_ns if found.step_ns else 0.0,
        gain_ns=found.lateness.sum_gain((slow.rank, *found.also_slow)) / len(found.steps),
        causes=find_starvation(excess, slow.starved_frac * slow.step_ns, starved)
        or find_causes(found.together, found.together.mark(slow.rank)),
    )
