"""Bounds of the change from pairs of runs that hold whatever the scatter of runs looks like.

Which run of a pair was the new version fell by lot. If both versions are the same, then each pair might as well have
come out with the other sign, whatever drifted, warmed up or came and went on the host meanwhile: all that is needed is
to see how many of the 2ᵏ ways to choose signs make as much of a slowdown as the one that was seen. The bounds that
belong to this test are means of subsets of the pairs in order of size (Hartigan 1969, JASA 64, typical values): of five
pairs the smallest and the largest.

False alarms at a stated 5 %, simulated over 22 kinds of scatter (normal, heavy tails, drift, a first run that is cold, runs
that resemble the one before, neighbours that come and go; 6,000 comparisons each, 3,000 of eight pairs):

- t on pairs whose order alternates by a rule: up to 7 %, and 22 to 40 % where what comes and goes has the period of two
  pairs;
- t on pairs whose order fell by lot: up to 6 %, of three or four pairs 7 to 9 % at that period;
- these bounds, order by lot: 3 % of five pairs, up to 5 % of eight.

The price where runs scatter normally by 1 %: of five pairs 3 % slower is found in 91 % instead of 98 %, 5 % slower always;
where they scatter by 2 %, 5 % slower in 80 % instead of 93 %.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from collector.format.intervals import Floats
from profiler_server.analysis.compare.chance import ALPHA
from profiler_server.analysis.compare.run_statistics import POWER, Estimate, compare_pairs
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.compare import LEAST_PAIRS

MOST_WHOLE = 12
"""Of more pairs there are too many subsets: as many are drawn from them as this number has, with a fixed seed."""
WORTH_PAIRS = 100
"""Nobody records more to be told."""


def judge_pairs(base: Floats, new: Floats) -> Estimate:
    """Compare runs that were recorded in pairs, from the median step of each.

    Of three or four the bounds are those of t, which takes the logarithms of the ratios to be normal and independent.
    """
    by_t = compare_pairs(base, new)
    if len(base) < LEAST_PAIRS:
        return by_t
    ratios = np.log(new / base)
    means = _average_subsets(ratios)
    place = math.floor(ALPHA * (len(means) + 1)) - 1
    least, most = (math.expm1(float(means[at])) for at in (place, -1 - place))
    return replace(
        by_t,
        least=least,
        most=most,
        low=min(by_t.low, least),
        high=max(by_t.high, most),
        p=(1 + np.count_nonzero(means <= 0.0)) / (len(means) + 1),
        detectable=math.expm1(find_detectable(len(ratios)) * math.sqrt(2.0) * math.log1p(by_t.scatter)),
    )


def find_detectable(pairs: int) -> float:
    """Return the smallest slowdown that is found four times in five, in standard deviations of the pairs' ratios.

    The ratios are taken to be normal. Five pairs are found where all five agree; of more, t at the same level of chance
    finds nearly as much.
    """
    from scipy.special import nctdtrinc, ndtri, stdtrit

    if pairs == LEAST_PAIRS:
        return float(ndtri(POWER ** (1.0 / pairs)))
    level = math.floor(ALPHA * 2**pairs) / 2.0**pairs if LEAST_PAIRS < pairs <= MOST_WHOLE else ALPHA
    limit = stdtrit(pairs - 1.0, 1.0 - level)
    return float(nctdtrinc(pairs - 1.0, 1.0 - POWER, limit)) / math.sqrt(pairs)


def count_pairs(scatter: float, slowdown: float) -> int | None:
    """Return how many pairs of runs find a slowdown four times in five where runs of a program differ by `scatter`.

    None where `WORTH_PAIRS` do not.
    """
    # Two pairs get no verdict.
    told = math.log1p(slowdown) / (math.sqrt(2.0) * math.log1p(scatter)) if scatter > 0.0 else math.inf
    return next((pairs for pairs in range(3, WORTH_PAIRS + 1) if find_detectable(pairs) <= told), None)


def _average_subsets(values: Floats) -> Floats:
    """Return the means of all subsets but the empty one, in order of size."""
    members = _list_subsets(len(values))
    means: Floats = np.sort(members @ values / members.sum(axis=1))
    return means


@derived()
def _list_subsets(count: int) -> Floats:
    """Return a row for each subset but the empty one: 1 for its members, 0 for the others."""
    if count > MOST_WHOLE:
        members: Floats = (np.random.default_rng(count).random((2**MOST_WHOLE - 1, count)) < 0.5).astype(np.float64)
        return members[members.any(axis=1)]
    numbers = np.arange(1, 2**count)
    whole: Floats = ((numbers[:, None] >> np.arange(count)) & 1).astype(np.float64)
    return whole
