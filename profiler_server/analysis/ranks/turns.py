"""Where not one rank is always the last: turns, a change from one rank to another, and single waits that are most of all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.ranks.causes import find_causes
from profiler_server.analysis.ranks.lateness import Lateness
from profiler_server.analysis.ranks.rare import LEAST_LONG, mark_long
from profiler_server.analysis.ranks.together import COMMUNICATION, StepsTogether
from profiler_server.facts.job import BEHIND_FRAC, STARVED, Cause, Handover, Pause, Rotation

ROTATING_ENTROPY = 0.8
"""Of who comes last, 1 for all ranks equally often: from here the ranks take turns."""
LEAST_RANKS = 4
"""Fewer ranks have no deviation of the others; there the difference must be sure step by step."""
LARGE_WAIT_FRAC = 0.1
OUTLYING_WAIT = 1.5
"""The last of very many ranks is late by chance alone. Turns are named where the wait is so large a share of the step, or
so many times what the usual spread of the ranks explains."""
LEAST_STEPS = 10
"""Fewer steps do not tell that the ranks take turns; collectives of fewer steps give way to the steps."""
ONE_PHASE_FRAC = 0.8
MORE_THAN_WORK_FRAC = 0.2
"""A phase that is so much of what the last rank does longer, and so much more of that than of the work, is no chance:
a rank that waits for a processor is held up wherever it works."""
MOST_OF_WAITING_FRAC = 0.5
LAST_BEFORE_AND_AFTER_FRAC = 0.8
"""The one rank is the last in so many of the steps before a change, and the other in so many of those behind it."""


def find_pause(lateness: Lateness, together: StepsTogether, step_ns: float) -> Pause | None:
    """Return such waits where they are much of the time, None where they are little or come more often.

    What makes a rank late to the meeting of one step may lie behind that of the step before.
    """
    steps, late = lateness.sum_by_step()
    margin, is_long = mark_long(late)
    waited = float(margin[is_long].sum())
    if not 0 < is_long.sum() < LEAST_LONG or len(steps) - is_long.sum() < LEAST_STEPS:
        return None
    if waited < MOST_OF_WAITING_FRAC * margin.sum() or waited < BEHIND_FRAC * step_ns * len(steps):
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
    """Return the one of a step and the one before in which a rank did more of its own."""
    if rank not in together.ranks:
        return step
    own = together.own_ns[together.ranks.index(rank)]
    near = np.flatnonzero((together.step == step) | (together.step == step - 1))
    return int(together.step[near[np.argmax(own[near])]]) if len(near) else step


def find_handover(ranks: Sequence[int], steps: Ints, late_ns: Floats, step_ns: float) -> Handover | None:
    """Return from which step on another rank is the last than before, None where both sides are not as clear as that."""
    is_last = np.argmax(late_ns, axis=0)[None, :] == np.arange(len(ranks))[:, None]
    before = np.cumsum(is_last, axis=1)
    after = before[:, -1:] - before
    at = int(np.argmax(before.max(axis=0) + after.max(axis=0))) + 1
    first, second = int(np.argmax(before[:, at - 1])), int(np.argmax(after[:, at - 1]))
    sides = ((first, slice(None, at)), (second, slice(at, None)))
    if first == second or min(at, len(steps) - at) < LEAST_STEPS:
        return None
    others = [late_ns[row, side] - np.median(np.delete(late_ns[:, side], row, axis=0), axis=0) for row, side in sides]
    excess = [float(side.mean()) for side in others]
    last = [float(is_last[row, side].mean()) for row, side in sides]
    if min(last) < LAST_BEFORE_AND_AFTER_FRAC or min(excess) < LARGE_WAIT_FRAC * step_ns:
        return None
    return Handover(int(steps[at]), ranks[first], excess[0], ranks[second], excess[1])


def find_rotation(
    lateness: Lateness, late_ns: Floats, step_ns: float, together: StepsTogether, starved_ns: float
) -> Rotation | None:
    """Return how the ranks take turns at coming last, None where they do not, or where that costs little.

    `starved_ns` is how long a rank was ready to run in the mean step and had no processor.
    """
    steps = late_ns.shape[1]
    counts = np.bincount(np.argmax(late_ns, axis=0), minlength=len(lateness.ranks))
    waited = lateness.sum_most(lateness.waited_ns) / steps
    if steps < LEAST_STEPS or waited < BEHIND_FRAC * step_ns:
        return None
    if waited < LARGE_WAIT_FRAC * step_ns and waited < OUTLYING_WAIT * _expect_wait(lateness):
        return None
    shares = counts[counts > 0] / steps
    entropy = float(-(shares * np.log(shares)).sum() / np.log(min(len(counts), steps)))
    if entropy < ROTATING_ENTROPY:
        return None
    causes = find_causes(together, together.mark_longest())
    one_phase = _is_one_phase(causes, together)
    if starved_ns >= waited and not one_phase:
        causes = (Cause(STARVED, waited, 1.0),)
    return Rotation(waited, waited / step_ns, causes, entropy, one_phase)


def _is_one_phase(causes: Sequence[Cause], together: StepsTogether) -> bool:
    if not causes or causes[0].name not in PHASE_NAMES or causes[0].share_frac < ONE_PHASE_FRAC:
        return False
    parts = together.parts_ns.sum(axis=(1, 2))
    of_work = float(parts[PHASE_NAMES.index(causes[0].name)] / max(parts.sum() - parts[COMMUNICATION], 1.0))
    return causes[0].share_frac >= of_work + MORE_THAN_WORK_FRAC


def _expect_wait(lateness: Lateness) -> float:
    """Return how long ranks that vary normally, by their usual spread in each meeting, wait for the last in a step.

    Few ranks have no usual spread: any wait may be chance.
    """
    ranks = len(lateness.ranks)
    if ranks < LEAST_RANKS:
        return float("inf")
    spread = 1.4826 * np.nanmedian(np.abs(lateness.late_ns), axis=0)
    return float(spread.sum() / len(np.unique(lateness.step)) * np.sqrt(2 * np.log(ranks)))
