"""Where values in a row part into two levels, by a rank statistic with a known chance of a false alarm.

The statistic is the maximally selected standardised rank sum (Lausen and Schumacher 1992, Biometrics 48): of all places
that part the values, the one that ranks tell apart best. Ranks make it blind to how far single values lie off, and its
distribution without a change depends on the number of values alone, so it is found by permutation, with a fixed seed.
"""

from __future__ import annotations

import numpy as np

from collector.format.intervals import Floats
from profiler_server.derive.derived import derived

LEAST_SIDE = 4
"""Values before and after a change, at least."""
LINE_FRAC = 0.75
"""A step must explain the values better than a straight line: what is left over is less than this part."""
MOST_VALUES = 80
_PERMUTATIONS = 9_999
_SEED = 20


def rank_values(values: Floats) -> Floats:
    """Return the ranks of values from 1, the mean rank for those that are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = ((ends - counts + ends + 1) / 2)[inverse.reshape(-1)]
    return ranks


def part_ranks(ranks: Floats) -> tuple[int, float]:
    """Return how many values lie before the place that parts them best, and how well it does."""
    scores = _score(ranks[None, :])[0]
    best = int(np.argmax(scores))
    return best + LEAST_SIDE, float(scores[best])


def find_chance(count: int, score: float) -> float:
    """Return how often so many values without a change score as much."""
    best = _permute(count)
    return float(len(best) - np.searchsorted(best, score - 1e-9) + 1) / (len(best) + 1)


def measure_dependence(values: Floats, *parted: int) -> float:
    """Return how much a value tells of the next one, by ranks within what lies between the changes."""
    sides = [rank_values(side) - (len(side) + 1) / 2 for side in np.split(values, parted)]
    pairs = [(side[:-1], side[1:]) for side in sides if len(side) > 1]
    spread = sum(float((side**2).sum()) for side in sides)
    return sum(float((left * right).sum()) for left, right in pairs) / spread if spread else 0.0


def beats_line(values: Floats, parted: int) -> bool:
    """Say whether one step explains the values better than a steady slope does."""
    places = np.arange(len(values), dtype=np.float64)
    line = np.polyval(np.polyfit(places, values, 1), places)
    step = np.where(places < parted, np.median(values[:parted]), np.median(values[parted:]))
    return float(np.abs(values - step).sum()) <= LINE_FRAC * float(np.abs(values - line).sum())


def _score(ranks: Floats) -> Floats:
    """Return the standardised rank sum of each place, for each row of ranks."""
    count = ranks.shape[1]
    first = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, first - 1]
    scores: Floats = np.abs(sums) / np.sqrt(first * (count - first) * (count + 1) / 12)
    return scores


@derived()
def _permute(count: int) -> Floats:
    """Return the best scores of values without a change, in order."""
    random = np.random.default_rng(_SEED)
    rows: Floats = np.argsort(random.random((_PERMUTATIONS, count)), axis=1).astype(np.float64) + 1.0
    scores: Floats = np.sort(_score(rows).max(axis=1))
    return scores
