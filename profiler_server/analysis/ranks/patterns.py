"""The causes of late ranks, and patterns in which the last rank changes: turns, a change from one rank to another, and
occasional delays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.format.intervals import Floats, Ints, Mask
from collector.format.phases import BACKWARD, COMMUNICATION, FORWARD, PHASE_NAMES, PHASE_PLACES
from profiler_server.analysis.change_points import rank_values
from profiler_server.analysis.ranks.lateness import Lateness
from profiler_server.analysis.ranks.together import StepsTogether
from profiler_server.diagnosis.limits import stragglers as limits
from profiler_server.diagnosis.limits.facts import BEHIND_FRAC, MOST_FRAC
from profiler_server.facts.job import (
    BETWEEN,
    COLLECTING,
    STARVED,
    Cause,
    Garbage,
    Handover,
    Pause,
    RankComparison,
    Stretch,
    Turns,
)


def find_causes(together: StepsTogether, late: Mask) -> tuple[Cause, ...]:
    """Return the causes of lateness in the cells that the mask `late` (ranks, steps) marks, longest first.

    A cause is a phase, work between steps, or garbage collection that took longer than the median of the ranks.
    """
    count = int(late.sum())
    if not count:
        return ()
    parts = together.parts_ns - np.median(together.parts_ns, axis=1, keepdims=True)
    excess = {name: float(parts[at][late].mean()) for at, name in enumerate(PHASE_NAMES) if at != COMMUNICATION}
    excess[BETWEEN] = float((together.between_ns - np.median(together.between_ns, axis=0))[late].mean())
    longer = sum(value for value in excess.values() if value > 0)
    if longer <= 0:
        return ()
    collecting = together.collecting_ns - np.median(together.collecting_ns, axis=0, keepdims=True)
    collected = float(collecting[late].mean())
    if collected >= limits.CLEAR_FRAC * longer:
        return (Cause(COLLECTING, collected, min(collected / longer, 1.0)),)
    causes = [
        Cause(name, value, value / longer)
        for name, value in excess.items()
        if value >= limits.LEAST_CAUSE_FRAC * longer
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.excess_ns))


def find_starvation(excess_ns: float, starved_ns: float, others_ns: float) -> tuple[Cause, ...]:
    """Return the lack of a processor as the cause of a late rank; empty if it explains too little of the rank's
    lateness `excess_ns`.

    `starved_ns` is how long the rank was ready to run in a step but had no processor; `others_ns` is the median of this
    time over the other ranks.
    """
    longer = starved_ns - others_ns
    if excess_ns <= 0 or longer < limits.CLEAR_FRAC * excess_ns:
        return ()
    return (Cause(STARVED, longer, min(longer / excess_ns, 1.0)),)


def find_uneven_work(together: StepsTogether) -> float | None:
    """Return the correlation of forward time and backward time over ranks and steps; None if the correlation is low, or
    if these times hardly vary.

    Constant differences between ranks, and between steps of all ranks, are removed first. Such differences come from a
    slow device or a slow step, not from unequal input.
    """
    if len(together.step) < limits.LEAST_MEETINGS:
        return None
    forward, backward = (_take_off(together.parts_ns[place]) for place in (FORWARD, BACKWARD))
    varies = float((forward + backward).std())
    if varies < BEHIND_FRAC * float(together.step_ns.mean()) or not forward.std() or not backward.std():
        return None
    found = float(np.corrcoef(forward.ravel(), backward.ravel())[0, 1])
    return found if found >= limits.UNEVEN_CORRELATION else None


def weigh_garbage(together: StepsTogether) -> Garbage | None:
    """Return the time saved if all ranks collect garbage at the same steps; None if the saving is small.

    A pause p that occurs on each of n ranks with probability q per step costs p(1 - (1 - q)^n). With simultaneous
    pauses it costs pq.
    """
    ranks, steps = together.collecting_ns.shape
    step_ns = float(together.step_ns.mean()) if steps else 0.0
    pauses = together.collecting_ns >= limits.LEAST_PAUSE_FRAC * step_ns
    if not steps or not pauses.any():
        return None
    pause, chance = float(together.collecting_ns[pauses].mean()), float(pauses.mean())
    hit = float(pauses.any(axis=0).mean())
    most = float(pauses.mean(axis=1).max())
    if (
        hit < limits.APART_PAUSES * chance or most > limits.CLEAR_FRAC * hit
    ):  # they collect together already, or one rank alone does
        return None
    gain = pause * (1.0 - (1.0 - chance) ** ranks - chance)
    return Garbage(pause, chance, gain) if gain >= limits.LEAST_GAIN_FRAC * step_ns else None


def _take_off(values: Floats) -> Floats:
    found = values - np.median(values, axis=1, keepdims=True)
    return found - np.median(found, axis=0, keepdims=True)


def find_pause(lateness: Lateness, together: StepsTogether, step_ns: float) -> Pause | None:
    """Return occasional long waits for one rank; None if such waits take little time in total, or are frequent.

    The rank may have lost its time in the step of the wait, or at the end of the step before.
    """
    steps, late = lateness.sum_by_step()
    margin, is_long = mark_long(late)
    waited = float(margin[is_long].sum())
    if not 0 < is_long.sum() < limits.LEAST_LONG or len(steps) - is_long.sum() < limits.LEAST_MEETINGS:
        return None
    if waited < MOST_FRAC * margin.sum() or waited < BEHIND_FRAC * step_ns * len(steps):
        return None
    at = int(np.argmax(margin))
    row = int(np.argmax(late[:, at]))
    number = _find_longest(together, lateness.ranks[row], int(steps[at]))
    causes = find_causes(together, together.mark(lateness.ranks[row]) & (together.step == number)[None, :])
    left_out = np.union1d(steps[is_long], np.append(steps[is_long] - 1, number))
    return Pause(
        rank=lateness.ranks[row],
        step=number,
        waited_ns=float(margin[at]),
        count=int(is_long.sum()),
        steps=tuple(left_out.tolist()),
        mean_ns=waited / len(steps),
        causes=causes,
    )


def _find_longest(together: StepsTogether, rank: int, step: int) -> int:
    """Return `step` or `step` - 1, whichever step has more own work of the rank (time without collectives)."""
    if rank not in together.ranks:
        return step
    own = together.own_ns[together.ranks.index(rank)]
    near = np.flatnonzero((together.step == step) | (together.step == step - 1))
    return int(together.step[near[np.argmax(own[near])]]) if len(near) else step


def find_handover(comparison: RankComparison, ranks: Sequence[int], steps: Ints, late_ns: Floats) -> Handover | None:
    """Return the step from which on another rank comes last, and both ranks; None if the last rank is not clear on
    both sides."""
    if comparison.is_hidden:
        return None
    is_last = np.argmax(late_ns, axis=0)[None, :] == np.arange(len(ranks))[:, None]
    before = np.cumsum(is_last, axis=1)
    after = before[:, -1:] - before
    at = int(np.argmax(before.max(axis=0) + after.max(axis=0))) + 1
    first, second = int(np.argmax(before[:, at - 1])), int(np.argmax(after[:, at - 1]))
    sides = ((first, slice(None, at)), (second, slice(at, None)))
    if first == second or min(at, len(steps) - at) < limits.LEAST_MEETINGS:
        return None
    others = [late_ns[row, side] - np.median(np.delete(late_ns[:, side], row, axis=0), axis=0) for row, side in sides]
    excess = [float(side.mean()) for side in others]
    last = [float(is_last[row, side].mean()) for row, side in sides]
    if min(last) < limits.CLEAR_FRAC or min(excess) < limits.LARGE_WAIT_FRAC * comparison.step_ns:
        return None
    gain_ns = (at * excess[0] + (len(steps) - at) * excess[1]) / len(steps)
    return Handover(comparison, int(steps[at]), ranks[first], excess[0], ranks[second], excess[1], gain_ns)


def find_stretch(steps: Ints, against_ns: Floats, step_ns: float) -> Stretch | None:
    """Return the steps in which a rank is late, if its lateness begins or ends within the run; None without a clear
    begin or end.

    `against_ns` is the rank's lateness relative to the other ranks in each step. The steps are divided where the change
    is most likely: the likelihood follows from the sum of squares within both sides, and a change is as likely at each
    step, judged or not. The squares are those of the positions of the values when sorted, because on a busy host single
    steps are late by many times the difference between both sides.
    """
    count, least = len(steps), limits.LEAST_MEETINGS
    if count < 2 * least:
        return None
    cuts = np.arange(least, count - least + 1)
    places = rank_values(against_ns)
    until = np.cumsum(places)
    before = until[cuts - 1] / cuts
    after = (until[-1] - until[cuts - 1]) / (count - cuts)
    within = ((places - places.mean()) ** 2).sum() - (after - before) ** 2 * cuts * (count - cuts) / count
    best = int(np.argmax(np.log(steps[cuts] - steps[cuts - 1]) - count / 2 * np.log(np.maximum(within, 1.0))))
    cut = int(cuts[best])
    is_from_start = bool(before[best] > after[best])
    quiet, late = slice(None, cut), slice(cut, None)
    if is_from_start:
        quiet, late = late, quiet
    quiet_ns, late_ns = _average_middle(against_ns[quiet]), _average_middle(against_ns[late])
    middle_ns = (quiet_ns + late_ns) / 2
    clear_frac = min((against_ns[late] > middle_ns).mean(), (against_ns[quiet] < middle_ns).mean())
    if quiet_ns >= BEHIND_FRAC * step_ns or late_ns < limits.LARGE_WAIT_FRAC * step_ns:
        return None
    if clear_frac < limits.CLEAR_FRAC:
        return None
    inside, beside = steps[late], steps[quiet]
    return Stretch(int(inside[0]), int(inside[-1]), late_ns, is_from_start, int(beside[0 if is_from_start else -1]))


def _average_middle(values: Floats) -> float:
    """Return the mean of the middle half of the values."""
    quarter = len(values) // 4
    return float(np.sort(values)[quarter : len(values) - quarter].mean())


def find_turns(
    comparison: RankComparison, lateness: Lateness, late_ns: Floats, together: StepsTogether, starved_ns: float
) -> Turns | None:
    """Return a summary of ranks that take turns as the last rank; None if they do not take turns, or if this costs
    little.

    `starved_ns` is how long a rank was ready to run in the mean step but had no processor."""
    steps, step_ns = late_ns.shape[1], comparison.step_ns
    counts = np.bincount(np.argmax(late_ns, axis=0), minlength=len(lateness.ranks))
    waited = lateness.sum_most(lateness.waited_ns) / steps
    if steps < limits.LEAST_MEETINGS or waited < BEHIND_FRAC * step_ns:
        return None
    if waited < limits.LARGE_WAIT_FRAC * step_ns and waited < limits.OUTLYING_WAIT * _expect_wait(lateness):
        return None
    shares = counts[counts > 0] / steps
    entropy = float(-(shares * np.log(shares)).sum() / np.log(min(len(counts), steps)))
    if entropy < limits.ROTATING_ENTROPY:
        return None
    causes = find_causes(together, together.mark_longest())
    one_phase = _is_one_phase(causes, together)
    if starved_ns >= waited and not one_phase:
        causes = (Cause(STARVED, waited, 1.0),)
    return Turns(comparison, waited, causes, entropy, one_phase)


def _is_one_phase(causes: Sequence[Cause], together: StepsTogether) -> bool:
    if not causes or causes[0].name not in PHASE_NAMES or causes[0].share_frac < limits.CLEAR_FRAC:
        return False
    parts = together.parts_ns.sum(axis=(1, 2))
    of_work = float(parts[PHASE_PLACES[causes[0].name]] / max(parts.sum() - parts[COMMUNICATION], 1.0))
    return causes[0].share_frac >= of_work + limits.MORE_THAN_WORK_FRAC


def _expect_wait(lateness: Lateness) -> float:
    """Return the wait for the last rank per step, in ns, that the usual variation of the ranks alone would cause.

    The wait is infinite for few ranks, because their usual spread is unknown.
    """
    ranks = len(lateness.ranks)
    if ranks < limits.LEAST_RANKS:
        return float("inf")
    spread = 1.4826 * np.nanmedian(np.abs(lateness.late_ns), axis=0)
    return float(spread.sum() / len(np.unique(lateness.step)) * np.sqrt(2 * np.log(ranks)))


def weigh_longest(late_ns: Floats, row: int) -> tuple[int, int] | None:
    """Return the number of long waits in which rank `row` came last, and the number of all long waits.

    None if the first number may be chance, or if the long waits are not most of the delay by this rank. `late_ns` is
    (ranks, steps). A wait is the time from the second-last to the last rank.
    """
    margin, is_long = mark_long(late_ns)
    is_last = np.argmax(late_ns, axis=0) == row
    count, was_last = int(is_long.sum()), int((is_long & is_last).sum())
    chance = 1.0 / len(late_ns)
    error = float(np.sqrt(count * chance * (1.0 - chance)))
    is_sure = count >= limits.LEAST_LONG and was_last - count * chance > limits.SURE_ERRORS * error
    is_most = margin[is_long & is_last].sum() >= MOST_FRAC * margin[is_last].sum()
    return (was_last, count) if is_sure and is_most and was_last >= limits.CLEAR_FRAC * count else None


def mark_long(late_ns: Floats) -> tuple[Floats, Mask]:
    """Return for each step how far the last rank is behind the second-last, in ns, and a mask of steps with a long
    delay.

    `late_ns` has shape (ranks, steps).
    """
    ordered = np.sort(late_ns, axis=0)
    margin: Floats = ordered[-1] - ordered[-2]
    usual = float(np.median(margin))
    is_long: Mask = margin > usual + limits.LONG_DEVIATIONS * 1.4826 * float(np.median(np.abs(margin - usual)))
    return margin, is_long
