"""Which rank the others wait for, how sure that is, and by which part of its step: the one answer for rules and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.ranks.causes import find_causes, find_starvation, find_uneven_work, weigh_garbage
from profiler_server.analysis.ranks.collectives import match_ranks
from profiler_server.analysis.ranks.lateness import Lateness, measure_calls, measure_steps
from profiler_server.analysis.ranks.ranks import OWN_PHASES, RankSummary
from profiler_server.analysis.ranks.rare import weigh_longest
from profiler_server.analysis.ranks.together import StepsTogether, put_together
from profiler_server.analysis.ranks.turns import LEAST_RANKS, LEAST_STEPS, find_handover, find_pause, find_rotation
from profiler_server.facts.job import (
    BEHIND_FRAC,
    Judgement,
    Straggler,
)
from profiler_server.store.cache.memory import MemoryCache

OUTLYING_DEVIATIONS = 5.0
"""From so many robust deviations of the others on, a rank is no longer one of them."""
LEAST_DEVIATION_FRAC = 0.005
"""Ranks that are alike to the microsecond deviate by nothing: their deviation counts as this share of the step at least."""
SURE_ERRORS = 3.0
"""Standard errors from which a difference is no longer put down to chance."""
LAST_FRAC = 0.5
"""The rank that comes last in so many of the steps holds the others up, however much it varies."""
COVERED_FRAC = 0.5
EXPLAINED_FRAC = 0.7
"""Collectives in which the ranks are held for a smaller share of their communication are not where they wait."""


_JUDGED: MemoryCache[tuple[Judgement, Lateness | None]] = MemoryCache(16)


def judge_ranks(ranks: Sequence[RankSummary]) -> Judgement:
    """Judge who waits for whom, from what is kept if the files of the ranks are the same."""
    return _recall(ranks)[0]


def measure_waits(ranks: Sequence[RankSummary]) -> tuple[tuple[int, ...], Ints, Floats] | None:
    """Return ranks, steps, and how long each rank waits for the last one in each step; None where that is not known."""
    lateness = _recall(ranks)[1]
    if lateness is None:
        return None
    step, late = lateness.sum_by_step()
    return lateness.ranks, step, late.max(axis=0, keepdims=True) - late


def _recall(ranks: Sequence[RankSummary]) -> tuple[Judgement, Lateness | None]:
    known = [rank for rank in ranks if rank.steps]
    if len(known) < 2:
        return Judgement(), None
    stamp = tuple((rank.together, rank.calls) for rank in known)
    key = (known[0].rank, len(known), id(known[0].together))
    return _JUDGED.find_or_compute(key, stamp, lambda: _judge(known))


def _judge(ranks: Sequence[RankSummary]) -> tuple[Judgement, Lateness | None]:
    matched = match_ranks(ranks)
    if matched.apart_ns or matched.strangers:
        return Judgement(apart_ns=matched.apart_ns or None, strangers=matched.strangers), None
    together = put_together({rank.rank: rank.together for rank in ranks})
    lateness = _choose(ranks, together)
    missing = tuple(rank.rank for rank in ranks if lateness is None or rank.rank not in set(lateness.ranks))
    if lateness is None or len(lateness.ranks) < 2:
        return Judgement(left_out=missing), None
    judged = [rank for rank in ranks if rank.rank in set(lateness.ranks)]
    return replace(_judge_lateness(judged, lateness, together), left_out=missing), lateness


def _choose(ranks: Sequence[RankSummary], together: StepsTogether) -> Lateness | None:
    """Return the lateness by collectives where these are of enough of the steps, or where the steps do not tell waiting.

    Of DDP's reductions only some are listed; an outlier among few would count for too much. A rank of which too few are
    listed for it to be compared would never be found slow.
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
    covered = len(np.unique(found.step)) >= max(LEAST_STEPS, COVERED_FRAC * len(together.step))
    is_enough = covered or all(rank.state == "imported" for rank in ranks)
    is_seen = by_steps is not None and bool(together.held_ns.any())
    is_whole = set(together.ranks) <= found.compared and _explain_waiting(ranks, together, found.step)
    return found if len(found.step) and ((is_enough and is_whole) or not is_seen) else by_steps


def _explain_waiting(ranks: Sequence[RankSummary], together: StepsTogether, steps: Ints) -> bool:
    """Say whether the collectives that were listed are where the ranks wait.

    Of one that is begun by the way and waited for in C++, as those of `Join`, only the call is seen.
    """
    if all(rank.state == "imported" for rank in ranks):
        return True
    shared = together.step[np.isin(together.step, steps)]
    held = float(together.held_ns[:, np.isin(together.step, shared)].sum())
    calls = [rank.calls for rank in ranks if rank.calls is not None and rank.rank in together.ranks]
    waited = sum(int(own.waiting_ns[np.isin(own.step, shared)].sum()) for own in calls)
    return waited >= EXPLAINED_FRAC * held


def _measure_by_steps(together: StepsTogether) -> Lateness:
    """Take steps as meetings, which end where the ranks leave their last collective if that was seen of enough steps.

    What a rank does after that in one step makes it late in the next.
    """
    held, meeting = together.held_ns, together.meeting_ns
    known = np.flatnonzero(np.isfinite(meeting).all(axis=0))
    if len(known) >= max(LEAST_STEPS, COVERED_FRAC * len(together.step)):
        own = meeting[:, known] - held[:, known]
        return measure_steps(together.ranks, together.step[known], own, held[:, known])
    return measure_steps(together.ranks, together.step, together.own_ns, held)


def _judge_lateness(ranks: Sequence[RankSummary], lateness: Lateness, together: StepsTogether) -> Judgement:
    step_ns = float(np.mean([rank.step_ns for rank in ranks]))
    is_hidden = lateness.source == "steps" and not together.held_ns.any()
    pause = None if is_hidden else find_pause(lateness, together, step_ns)
    if pause is not None:
        lateness, together = lateness.drop(pause.steps), together.drop(pause.steps)
        ranks = [_average_again(rank, together) for rank in ranks]
        step_ns = float(np.mean([rank.step_ns for rank in ranks]))
    found = _judge_usual(ranks, lateness, together, step_ns)
    return replace(found, pause=pause, uneven_correlation=find_uneven_work(together), garbage=weigh_garbage(together))


def _average_again(rank: RankSummary, together: StepsTogether) -> RankSummary:
    """Return a rank with the means of the steps that are left."""
    if rank.rank not in together.ranks or not len(together.step):
        return rank
    row = together.ranks.index(rank.rank)
    phases = dict(zip(PHASE_NAMES, together.parts_ns[:, row].mean(axis=1).tolist(), strict=True))
    own, step = float(together.own_ns[row].mean()), float(together.step_ns[row].mean())
    return replace(rank, own_ns=own, step_ns=step, phases_ns=phases)


def _judge_usual(
    ranks: Sequence[RankSummary], lateness: Lateness, together: StepsTogether, step_ns: float
) -> Judgement:
    steps, late = lateness.sum_by_step()
    last = np.bincount(np.argmax(late, axis=0), minlength=len(ranks)) / len(steps)
    blame = lateness.sum_blame() / len(steps)
    numbers = lateness.ranks
    limits = _measure_limits(late, step_ns)
    straggler = _describe(ranks, _Place(late, limits, last), step_ns, together)
    also_slow = tuple(
        number
        for number, value in zip(numbers, np.median(late, axis=1).tolist(), strict=True)
        if len(ranks) >= LEAST_RANKS and straggler.is_slow and value > limits.least_ns and number != straggler.rank
    )
    gain_ns = _measure_gain(lateness, (straggler.rank, *also_slow)) / len(steps)
    is_hidden = lateness.source == "steps" and not together.held_ns.any()
    handover = None if is_hidden else find_handover(numbers, steps, late, step_ns)
    turns = None
    if not straggler.is_slow and handover is None:
        starved_ns = float(np.mean([rank.starved_frac * rank.step_ns for rank in ranks]))
        turns = find_rotation(lateness, late, step_ns, together, starved_ns)
    return Judgement(
        straggler=replace(straggler, gain_ns=gain_ns),
        source=lateness.source,
        meetings=len(lateness.step),
        steps=len(steps),
        step_ns=step_ns,
        blame_ns=dict(zip(numbers, blame.tolist(), strict=True)),
        last_frac=dict(zip(numbers, last.tolist(), strict=True)),
        least_frac=limits.least_ns / step_ns if step_ns else None,
        residual_ns=lateness.residual_ns,
        also_slow=also_slow,
        is_hidden=is_hidden,
        transfer_ns=float(together.held_ns.min(axis=0).mean()) if together.held_ns.size else None,
        rotation=turns,
        handover=handover,
    )


def _measure_gain(lateness: Lateness, slow: Sequence[int]) -> float:
    """Return how much earlier all meetings together would be without these ranks."""
    late = np.nan_to_num(lateness.late_ns, nan=-np.inf)
    rest = late[~np.isin(lateness.ranks, slow)].max(axis=0, initial=-np.inf)
    # A meeting of these ranks alone holds nobody else up.
    return lateness.sum_most(np.where(np.isfinite(rest), late.max(axis=0) - rest, 0.0))


@dataclass(frozen=True)
class _Limits:
    """`least_ns` is the least lateness that is named, `deviation_ns` how far ranks that are alike lie apart."""

    least_ns: float
    deviation_ns: float


@dataclass(frozen=True, eq=False)
class _Place:
    late_ns: Floats
    limits: _Limits
    last_frac: Floats


def _measure_limits(late_ns: Floats, step_ns: float) -> _Limits:
    ranks, steps = late_ns.shape
    error = float(np.median(late_ns.std(axis=1))) / float(np.sqrt(steps))
    least = max(BEHIND_FRAC * step_ns, SURE_ERRORS * error)
    if ranks < LEAST_RANKS:
        return _Limits(least, 0.0)
    usual = np.median(late_ns, axis=1)
    deviation = 1.4826 * float(np.median(np.abs(usual - np.median(usual))))
    deviation = max(deviation, LEAST_DEVIATION_FRAC * step_ns)
    return _Limits(max(least, OUTLYING_DEVIATIONS * deviation), deviation)


def _describe(ranks: Sequence[RankSummary], place: _Place, step_ns: float, together: StepsTogether) -> Straggler:
    late = place.late_ns
    row = int(np.argmax(late.mean(axis=1)))
    slow, others = ranks[row], [rank for at, rank in enumerate(ranks) if at != row]
    against = late[row] - np.median(np.delete(late, row, axis=0), axis=0)
    excess = float(against.mean())
    middle = float(np.median([rank.own_ns for rank in others]))
    starved = float(np.median([rank.starved_frac * rank.step_ns for rank in others]))
    phases = {name: float(np.median([rank.phases_ns[name] for rank in others])) for name in PHASE_NAMES}
    phase = max(OWN_PHASES, key=lambda name: slow.phases_ns[name] - phases[name])
    far = excess >= BEHIND_FRAC * step_ns
    outlies = len(ranks) < LEAST_RANKS or float(np.median(against)) > OUTLYING_DEVIATIONS * place.limits.deviation_ns
    often = _is_sure(against) and (outlies or float(place.last_frac[row]) >= LAST_FRAC)
    longest = weigh_longest(late, row) if far and not often else None
    sure = often or longest is not None
    return Straggler(
        rank=slow.rank,
        own_ns=middle + excess,
        others_ns=middle,
        behind_frac=excess / middle if middle else 0.0,
        phase=phase,
        phase_ns=slow.phases_ns[phase],
        phase_others_ns=phases[phase],
        others=len(others),
        is_slow=far and sure,
        is_unsure=far and not sure,
        late_frac=excess / step_ns if step_ns else 0.0,
        last_frac=float(place.last_frac[row]),
        causes=find_starvation(excess, slow.starved_frac * slow.step_ns, starved)
        or find_causes(together, together.mark(slow.rank)),
        longest=longest,
    )


def _is_sure(against_ns: Floats) -> bool:
    """Say whether a rank is late by more than chance explains: in the mean, or in so many of the steps.

    Steps that vary much hide a delay in their mean; step by step it shows.
    """
    steps = len(against_ns)
    error = float(against_ns.std()) / float(np.sqrt(steps))
    often = int((against_ns > 0).sum()) - steps / 2 > SURE_ERRORS * float(np.sqrt(steps)) / 2
    return bool(float(against_ns.mean()) > SURE_ERRORS * error or often)
