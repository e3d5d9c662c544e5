"""The place at which a sequence of values changes its level: steps of a run, or runs of a script.

The statistic is the maximally selected standardised rank sum (Lausen and Schumacher 1992, Biometrics 48). It selects
the split for which the ranks of the values (their positions when sorted) differ most between both sides. Ranks make the
statistic robust to outliers. Its distribution without a change depends only on the number of values. It is found by
permutation with a fixed seed. (scipy has no such statistic. Importing `scipy.stats` takes a second, and ranks take four
lines.)

Steps depend on the steps before them: a slow step slows the next. Steps are therefore grouped into blocks, and each
block is represented by its median. Blocks are made longer until their medians are independent. For runs, each change
splits the history, and both sides are searched again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.facts import SHIFT_CHANCE
from profiler_server.diagnosis.limits.steps import LEAST_BLOCK, LEAST_BLOCKS, MOST_DEPENDENCE
from profiler_server.facts.steps import Shift

LEAST_SIDE = 4
"""The smallest number of values on each side of a change."""
LINE_FRAC = 0.75
"""The largest residual of a change of level, as a share of the residual of a straight line."""
MOST_VALUES = 80
_PERMUTATIONS = 9_999
_SEED = 20


def rank_values(values: Floats) -> Floats:
    """Return the position of each value when sorted, counted from 1. Equal values get their mean position."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends + 1) / 2)[inverse.reshape(-1)]


def part_ranks(ranks: Floats) -> tuple[int, float]:
    """Return the best split of values with these ranks: the number of values before it, and its test statistic."""
    scores = _score(ranks[None, :])[0]
    best = int(np.argmax(scores))
    return best + LEAST_SIDE, float(scores[best])


def find_chance(count: int, score: float) -> float:
    """Return the p-value of a test statistic: the probability that `count` values without a change reach `score`."""
    best = _permute(count)
    return float(len(best) - np.searchsorted(best, score - 1e-9) + 1) / (len(best) + 1)


def measure_dependence(values: Floats, *parted: int) -> float:
    """Return the rank correlation of each value with the next, within sections that begin at the indexes `parted`."""
    sides = [rank_values(side) - (len(side) + 1) / 2 for side in np.split(values, parted)]
    pairs = [(side[:-1], side[1:]) for side in sides if len(side) > 1]
    spread = sum(float((side**2).sum()) for side in sides)
    return sum(float((left * right).sum()) for left, right in pairs) / spread if spread else 0.0


def beats_line(values: Floats, parted: int) -> bool:
    """Return whether one change of level, at index `parted`, fits the values clearly better than a straight line."""
    places = np.arange(len(values), dtype=np.float64)
    line = np.polyval(np.polyfit(places, values, 1), places)
    step = np.where(places < parted, np.median(values[:parted]), np.median(values[parted:]))
    return float(np.abs(values - step).sum()) <= LINE_FRAC * float(np.abs(values - line).sum())


def _score(ranks: Floats) -> Floats:
    count = ranks.shape[1]
    first = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, first - 1]
    scores: Floats = np.abs(sums) / np.sqrt(first * (count - first) * (count + 1) / 12)
    return scores


@derived()
def _permute(count: int) -> Floats:
    random = np.random.default_rng(_SEED)
    rows: Floats = np.argsort(random.random((_PERMUTATIONS, count)), axis=1).astype(np.float64) + 1.0
    return np.sort(_score(rows).max(axis=1))


def find_shift(durations_ns: Ints) -> Shift | None:
    """Return the lasting change of duration in steps that are given in time order. None with too few steps, or if
    chance or a gradual slope may explain it.
    """
    length = max(LEAST_BLOCK, -(-len(durations_ns) // MOST_VALUES))
    while len(durations_ns) // length >= LEAST_BLOCKS:
        blocks = _form_blocks(durations_ns, length)
        parted, score = part_ranks(rank_values(blocks))
        if measure_dependence(blocks, parted) <= MOST_DEPENDENCE:
            chance = find_chance(len(blocks), score)
            return _describe(durations_ns, blocks, parted, length, chance) if chance <= SHIFT_CHANCE else None
        length *= 2
    return None


def _describe(durations_ns: Ints, blocks: Floats, parted: int, length: int, chance: float) -> Shift | None:
    if not beats_line(blocks, parted):
        return None
    at = _refine(durations_ns, parted * length, length)
    before, after = float(np.median(durations_ns[:at])), float(np.median(durations_ns[at:]))
    middle, grows = (before + after) / 2, after > before
    low, high = blocks[:parted] < middle, blocks[parted:] > middle
    held = min(float((low == grows).mean()), float((high == grows).mean()))
    return Shift(at, before, after, held)


def _form_blocks(durations_ns: Ints, length: int) -> Floats:
    count = len(durations_ns) // length
    whole: Floats = np.median(durations_ns[: count * length].reshape(count, length), axis=1)
    whole[-1] = np.median(durations_ns[(count - 1) * length :])
    return whole


def _refine(durations_ns: Ints, at: int, length: int) -> int:
    """Return the index that best separates short from long steps, at most `length` steps away from the block border
    `at`.
    """
    first, last = max(at - length, 1), min(at + length, len(durations_ns) - 1)
    middle = (np.median(durations_ns[: at - length or at]) + np.median(durations_ns[at + length or at :])) / 2
    grows = np.median(durations_ns[at:]) > np.median(durations_ns[:at])
    is_late = (durations_ns > middle) == grows
    # Places are counted right where they are early before the border and late after it.
    gains = np.cumsum(np.where(is_late[first:last], -1, 1))
    return first + int(np.argmax(np.concatenate([[0], gains])))


CHANCE = 0.01
"""The probability of a false change in a history of independent runs."""
MOST_RUN_DEPENDENCE = 0.4
"""The correlation of a run with the next, without changes, up to which runs are treated as independent."""
MOST_RUNS = 40
"""The number of latest runs in a test. More runs would not make a recent change clearer."""


@dataclass(frozen=True)
class LevelChange:
    """A change of the runs' median step in a history of runs. `at` is the index of the first run after the change.

    `before_ns` is the median of the `before` runs since the previous change. `after_ns` is the median of the `after`
    runs until the next change. `chance` is the probability that chance alone gives a change this clear.
    """

    at: int
    before_ns: float
    after_ns: float
    before: int
    after: int
    chance: float

    @property
    def change_frac(self) -> float:
        return self.after_ns / self.before_ns - 1.0


@derived()
def find_level_changes(medians_ns: tuple[float, ...]) -> tuple[LevelChange, ...]:
    """Return the changes of level in the runs' median steps. `medians_ns` and the changes are in order of recording.

    Only the latest `MOST_RUNS` runs are tested. The result is empty if consecutive runs depend on each other.
    """
    skipped = max(0, len(medians_ns) - MOST_RUNS)
    values = np.array(medians_ns[skipped:], dtype=np.float64)
    found = _part(values, 0)
    if measure_dependence(values, *(at for at, _ in found)) > MOST_RUN_DEPENDENCE:
        return ()
    ends = [0, *(at for at, _ in found), len(values)]
    return tuple(
        LevelChange(
            skipped + at,
            float(np.median(values[begin:at])),
            float(np.median(values[at:end])),
            at - begin,
            end - at,
            chance,
        )
        for (at, chance), begin, end in zip(found, ends, ends[2:], strict=False)
    )


def _part(values: Floats, begin: int) -> list[tuple[int, float]]:
    """Return the indexes of the changes, in order, each with its p-value. `begin` is the index of the first value."""
    if len(values) < 2 * LEAST_SIDE or values.min() == values.max():
        return []
    at, score = part_ranks(rank_values(values))
    chance = find_chance(len(values), score)
    if chance > CHANCE or not beats_line(values, at):
        return []
    at = _place(values, at)
    return [*_part(values[:at], begin), (begin + at, chance), *_part(values[at:], begin + at)]


def _place(values: Floats, at: int) -> int:
    """Return the index near `at` that parts the values best: that with the least deviations from the medians of both
    sides. Ranks alone cannot tell neighbouring places apart where the levels do not overlap.
    """
    first, last = max(at - 2, LEAST_SIDE), min(at + 2, len(values) - LEAST_SIDE)
    return min(range(first, last + 1), key=lambda place: (_deviate(values[:place]) + _deviate(values[place:]), place))


def _deviate(values: Floats) -> float:
    return float(np.abs(values - np.median(values)).sum())
