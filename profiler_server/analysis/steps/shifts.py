"""Whether the usual step became longer for good at one step, by a rank statistic with a known chance of a false alarm.

Steps depend on the steps before them: whatever slows one slows the next. So they are first put together into blocks,
of which the median counts, and the blocks are made longer until the median of one says nothing of the next. The
statistic is the maximally selected standardised rank sum (Lausen and Schumacher 1992, Biometrics 48): of all places that
part the blocks, the one that ranks tell apart best. Ranks make it blind to how far single blocks lie off, and its
distribution without a change depends on the number of blocks alone, so it is found by permutation, with a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.steps import read_integers

LEAST_BLOCK = 5
"""Steps of a block: the median of so many is not moved by a single stall."""
MOST_BLOCKS = 80
LEAST_BLOCKS = 16
"""Fewer blocks cannot tell a change from chance, or were needed because every step depends on those before it."""
LEAST_SIDE = 4
"""Blocks before and after a change, at least."""
CHANCE = 0.001
"""Of so many runs without a change, one is said to have one, if blocks do not depend on each other."""
MOST_DEPENDENCE = 0.25
"""Correlation of a block with the next, the change itself taken out, up to which blocks count as independent."""
LINE_FRAC = 0.75
"""A step must explain the blocks better than a straight line: what is left over is less than this part."""
_PERMUTATIONS = 9_999
_SEED = 20


@dataclass(frozen=True)
class Shift:
    """A change at the place `at` of the steps given; `before_ns` and `after_ns` are the medians on both sides.

    `held_frac` is the smaller part, of the blocks before and of those after, that lie on their side of the middle.
    """

    at: int
    before_ns: float
    after_ns: float
    chance: float
    held_frac: float

    @property
    def change_frac(self) -> float:
        return self.after_ns / self.before_ns - 1.0 if self.before_ns else 0.0


def find_shift(durations_ns: Ints) -> Shift | None:
    """Return where the steps became longer or shorter for good, None where that may be chance, or is a slope."""
    length = max(LEAST_BLOCK, -(-len(durations_ns) // MOST_BLOCKS))
    while len(durations_ns) // length >= LEAST_BLOCKS:
        blocks = _form_blocks(durations_ns, length)
        parted, score = _part(_rank(blocks))
        if _measure_dependence(blocks, parted) <= MOST_DEPENDENCE:
            chance = _find_chance(len(blocks), score)
            return _describe(durations_ns, blocks, parted, length, chance) if chance <= CHANCE else None
        length *= 2
    return None


def find_growth(rows: pa.Table, before: Ints, after: Ints) -> dict[str, float]:
    """Return by how many ns the median of each phase grew from some rows of training steps to others."""
    values = {name: read_integers(rows, f"{name}_ns") for name in PHASE_NAMES}
    return {name: float(np.median(times[after]) - np.median(times[before])) for name, times in values.items()}


def _describe(durations_ns: Ints, blocks: Floats, parted: int, length: int, chance: float) -> Shift | None:
    if not _beats_line(blocks, parted):
        return None
    at = _refine(durations_ns, parted * length, length)
    before, after = float(np.median(durations_ns[:at])), float(np.median(durations_ns[at:]))
    middle, grows = (before + after) / 2, after > before
    low, high = blocks[:parted] < middle, blocks[parted:] > middle
    held = min(float((low == grows).mean()), float((high == grows).mean()))
    return Shift(at, before, after, chance, held)


def _form_blocks(durations_ns: Ints, length: int) -> Floats:
    """Return the medians of blocks of equal length; what is left over goes to the last one."""
    count = len(durations_ns) // length
    whole: Floats = np.median(durations_ns[: count * length].reshape(count, length), axis=1)
    whole[-1] = np.median(durations_ns[(count - 1) * length :])
    return whole


def _rank(values: Floats) -> Floats:
    """Return the ranks of values from 1, the mean rank for those that are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = ((ends - counts + ends + 1) / 2)[inverse.reshape(-1)]
    return ranks


def _part(ranks: Floats) -> tuple[int, float]:
    """Return how many blocks lie before the place that parts them best, and how well it does."""
    scores = _score(ranks[None, :])[0]
    best = int(np.argmax(scores))
    return best + LEAST_SIDE, float(scores[best])


def _score(ranks: Floats) -> Floats:
    """Return the standardised rank sum of each place, for each row of ranks."""
    count = ranks.shape[1]
    first = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, first - 1]
    scores: Floats = np.abs(sums) / np.sqrt(first * (count - first) * (count + 1) / 12)
    return scores


@lru_cache(MOST_BLOCKS)
def _permute(count: int) -> Floats:
    """Return the best scores of blocks without a change, in order."""
    random = np.random.default_rng(_SEED)
    rows: Floats = np.argsort(random.random((_PERMUTATIONS, count)), axis=1).astype(np.float64) + 1.0
    scores: Floats = np.sort(_score(rows).max(axis=1))
    return scores


def _find_chance(count: int, score: float) -> float:
    """Return how often blocks without a change score as much."""
    best = _permute(count)
    return float(len(best) - np.searchsorted(best, score - 1e-9) + 1) / (len(best) + 1)


def _measure_dependence(blocks: Floats, parted: int) -> float:
    """Return how much a block tells of the next one, by ranks within each side of the change."""
    sides = [_rank(side) - (len(side) + 1) / 2 for side in (blocks[:parted], blocks[parted:])]
    pairs = [(side[:-1], side[1:]) for side in sides if len(side) > 1]
    spread = sum(float((side**2).sum()) for side in sides)
    return sum(float((left * right).sum()) for left, right in pairs) / spread if spread else 0.0


def _beats_line(blocks: Floats, parted: int) -> bool:
    """Say whether one step explains the blocks better than a steady slope does."""
    places = np.arange(len(blocks), dtype=np.float64)
    line = np.polyval(np.polyfit(places, blocks, 1), places)
    step = np.where(places < parted, np.median(blocks[:parted]), np.median(blocks[parted:]))
    return float(np.abs(blocks - step).sum()) <= LINE_FRAC * float(np.abs(blocks - line).sum())


def _refine(durations_ns: Ints, at: int, length: int) -> int:
    """Return the step nearest to a border of blocks that parts short and long steps best."""
    first, last = max(at - length, 1), min(at + length, len(durations_ns) - 1)
    middle = (np.median(durations_ns[: at - length or at]) + np.median(durations_ns[at + length or at :])) / 2
    grows = np.median(durations_ns[at:]) > np.median(durations_ns[:at])
    is_late = (durations_ns > middle) == grows
    # Places are counted right where they are early before the border and late after it.
    gains = np.cumsum(np.where(is_late[first:last], -1, 1))
    return first + int(np.argmax(np.concatenate([[0], gains])))
