"""Tests whether one list of runs is slower than another, based on how much identical runs differ.

Steps of one run are consecutive and share a machine, a cache and a moment. Their scatter says little about the next run
of the same program. The unit here is therefore the run, represented by the median of its steps, and never the step.

Of many tests at 5 %, some succeed by chance. If a program with eight phases is compared with itself, one in three
comparisons has such a test. Holm's correction (Holm 1979, Scandinavian Journal of Statistics 6) keeps the chance of any
false success at 5 %, however the tests depend on each other. (scipy corrects for false discoveries only, and importing
`scipy.stats` takes a second: pages use `scipy.special`.)

In pairs of runs the order of base and new version is random. If both versions are the same, each sign of a pair is
equally likely, despite drift, warm-up or temporary load on the host. The bounds that belong to this sign test are
sorted means of subsets of the pairs (Hartigan 1969, JASA 64, typical values): for five pairs the smallest and the
largest. False alarms at a stated 5 %, simulated over 22 kinds of scatter (normal, heavy tails, drift, a cold first run,
runs that resemble the run before, temporary load): t on pairs in a fixed alternating order, up to 7 %, and 22 to 40 %
with load of a period of two pairs; t on pairs in random order, up to 6 %, with three or four pairs 7 to 9 % at that
period; these bounds, 3 % with five pairs, up to 5 % with eight. The price with normal scatter of 1 %: five pairs find a
slowdown of 3 % in 91 % instead of 98 % of cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.intervals import Floats
from collector.format.noise import average_stretches, count_independent
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.compare import LEAST_EFFECTIVE_STEPS, LEAST_PAIRS, MOST_CORRELATED

ALPHA = 0.05
"""Probability that a program counts as slower than itself."""


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means, `change`: the second less the first.

    `noise` is the half-width of its 95 % interval and `p` its two-sided p-value. Both are None if either side has fewer
    than two values.
    """

    change: float
    noise: float | None
    p: float | None


def compare_stretches(a: Floats, b: Floats) -> MeanDifference:
    """Return the difference of the means of two time series.

    The noise is estimated from the means of sections, because neighbouring values may depend on each other.
    """
    of_a, of_b = average_stretches(a), average_stretches(b)
    change = (float(b.mean()) if len(b) else 0.0) - (float(a.mean()) if len(a) else 0.0)
    if min(len(of_a), len(of_b)) < 2:
        return MeanDifference(change, None, None)
    return _judge_difference(change, *measure_error(of_a, of_b, (count_independent(of_a), count_independent(of_b))))


def compare_means(a: Floats, b: Floats) -> MeanDifference:
    """Return the difference of the means of two samples of independent values, whose spreads may differ (Welch's t)."""
    change = float(b.mean() - a.mean())
    if min(len(a), len(b)) < 2:
        return MeanDifference(change, None, None)
    return _judge_difference(change, *measure_error(a, b))


def _judge_difference(change: float, error: float, freedom: float) -> MeanDifference:
    from scipy.special import stdtr, stdtrit  # slow to import, and only few pages need it

    if error == 0.0:
        return MeanDifference(change, 0.0, 1.0 if change == 0.0 else 0.0)
    p = float(2.0 * stdtr(freedom, -abs(change) / error))
    return MeanDifference(change, float(stdtrit(freedom, 1.0 - ALPHA / 2)) * error, p)


def measure_error(a: Floats, b: Floats, counts: tuple[float, float] | None = None) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom (Welch, Satterthwaite).

    `counts` are the numbers of independent values in `a` and `b`, by default the numbers of all values.
    """
    counts = counts or (len(a), len(b))
    parts = a.var(ddof=1) / counts[0], b.var(ddof=1) / counts[1]
    error = math.sqrt(sum(parts))
    if error == 0.0:
        return 0.0, 1.0
    return error, sum(parts) ** 2 / (parts[0] ** 2 / (counts[0] - 1) + parts[1] ** 2 / (counts[1] - 1))


def correct_chances(chances: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's correction, in the given order. One that is at most `ALPHA` is significant."""
    corrected, highest = [1.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=lambda place: chances[place])):
        highest = max(highest, min((len(chances) - rank) * chances[place], 1.0))
        corrected[place] = highest
    return corrected


POWER = 0.8
"""Probability with which a slowdown called detectable is found."""


@dataclass(frozen=True)
class Estimate:
    """The change of the median step from one list of runs to another, as a share of the first. All figures but `p` are
    such shares.

    `low` and `high` are the 95 % interval of `change`. `p` is the probability that runs of an unchanged program are
    this slow by chance. The change is above `least` with 95 % certainty, and below `most` with 95 % certainty.
    `detectable` is the smallest slowdown that is found four times in five. `scatter` is the standard deviation
    between runs of one program.
    """

    change: float
    low: float
    high: float
    p: float
    detectable: float
    scatter: float
    least: float
    most: float


def compare_pairs(base: Floats, new: Floats) -> Estimate:
    """Return the change between runs recorded in pairs, by the median step of each run: a t test on the logarithms of
    the ratios.
    """
    ratios = np.log(new / base)
    spread = float(ratios.std(ddof=1))
    return _judge(float(ratios.mean()), spread / math.sqrt(len(ratios)), len(ratios) - 1.0, spread / math.sqrt(2.0))


def compare_lists(base: Floats, new: Floats) -> Estimate:
    """Return the change between two lists of runs of any order and length, by the median step of each run (Welch's
    t).
    """
    a, b = np.log(base), np.log(new)
    error, freedom = measure_error(a, b)
    scatter = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2.0)
    return _judge(float(b.mean() - a.mean()), error, freedom, scatter)


def compare_with_known_scatter(base: float, new: float, like: Floats) -> Estimate:
    """Compare one run with another by the scatter of the median steps of other runs (`like`) of the same program.

    The new run is slower only if it is also slower than each of these other runs. Otherwise a base that was fast by
    chance would make the new run look slower. In simulations with eight other runs this lowers false alarms from 5 to 3
    % with normal scatter, and from 9 to 5 % with the heaviest tails. It misses one in a hundred slowdowns.
    """
    scatter = float(np.log(like).std(ddof=1))
    found = _judge(math.log(new / base), scatter * math.sqrt(2.0), len(like) - 1.0, scatter)
    if new > like.max():
        return found
    return replace(found, p=max(found.p, ALPHA), least=min(found.least, float(new / like.max()) - 1.0))


def _judge(change: float, error: float, freedom: float, scatter: float) -> Estimate:
    from scipy.special import nctdtrinc, stdtr, stdtrit  # 0.4 s, and nobody but the gate needs it

    if error <= 0.0:
        ratio = math.expm1(change)
        return Estimate(ratio, ratio, ratio, 1.0 if change <= 0 else 0.0, 0.0, 0.0, ratio, ratio)
    reach = float(stdtrit(freedom, 1.0 - ALPHA / 2)) * error
    limit = float(stdtrit(freedom, 1.0 - ALPHA))
    return Estimate(
        change=math.expm1(change),
        low=math.expm1(change - reach),
        high=math.expm1(change + reach),
        p=float(stdtr(freedom, -change / error)),
        # A change of δ standard errors makes t noncentral: it exceeds the limit four times in five at this δ.
        detectable=math.expm1(float(nctdtrinc(freedom, 1.0 - POWER, limit)) * error),
        scatter=math.expm1(scatter),
        least=math.expm1(change - limit * error),
        most=math.expm1(change + limit * error),
    )


@dataclass(frozen=True)
class PartChange:
    """A phase or kernel whose mean per step changed by more than chance. `change_ns` is the difference of the means."""

    name: str
    change_ns: float
    p: float


def find_changed_parts(
    base: Sequence[Mapping[str, float]], new: Sequence[Mapping[str, float]]
) -> tuple[PartChange, ...]:
    """Return the phases or kernels that changed, the largest change first (Welch's t on the runs, Holm's correction).

    A phase or kernel that is missing in a run has zero time there. A phase may change clearly although the step does
    not, because the noise of the step is larger.
    """
    names = sorted({name for run in (*base, *new) for name, value_ns in run.items() if value_ns})
    found = []
    for name in names:
        a = np.array([run.get(name, 0.0) for run in base])
        b = np.array([run.get(name, 0.0) for run in new])
        difference = compare_means(a, b)
        found.append(PartChange(name, difference.change, 1.0 if difference.p is None else difference.p))
    corrected = correct_chances([part.p for part in found])
    clear = [part for part, p in zip(found, corrected, strict=True) if p <= ALPHA]
    return tuple(sorted(clear, key=lambda part: -abs(part.change_ns)))


def bootstrap_medians(base: Floats, new: Floats, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the change of the median step between two runs, by a bootstrap of `draws` samples.

    The samples consist of blocks of steps, which preserve the dependence of consecutive steps. The length of a block
    follows from the correlation φ of one step with the next: ⌈1.5·((2φ/(1 − φ²))²·n)^⅓⌉.
    """
    random = np.random.default_rng(seed)
    ratios = np.log(_draw(new, draws, random)) - np.log(_draw(base, draws, random))
    low, high = np.percentile(ratios, (2.5, 97.5))
    return math.expm1(float(low)), math.expm1(float(high))


def _draw(values: Floats, draws: int, random: np.random.Generator) -> Floats:
    length = choose_block(values)
    count = -(-len(values) // length)
    starts = random.integers(0, max(len(values) - length, 0) + 1, size=(draws, count))
    rows = (starts[:, :, None] + np.arange(length)).reshape(draws, -1)[:, : len(values)]
    medians: Floats = np.median(values[rows], axis=1)
    return medians


def choose_block(values: Floats) -> int:
    """Return the length in steps of a block for `bootstrap_medians`, at least 1 and at most half of the steps."""
    if len(values) < 4 or not values.std():
        return 1
    phi = min(max(_correlate(values), 0.0), 0.99)
    length = math.ceil(1.5 * ((2 * phi / (1 - phi**2)) ** 2 * len(values)) ** (1 / 3))
    return int(min(max(length, 1), len(values) // 2))


def has_interval(values: Floats) -> bool:
    """Return whether a run's steps are independent enough for an interval.

    The correlation φ of one step with the next must be at most 0.8, and the effective number n(1 − φ)/(1 + φ) of steps
    at least 20.
    """
    if not values.std():
        return len(values) >= LEAST_EFFECTIVE_STEPS
    phi = max(_correlate(values), 0.0)
    return phi <= MOST_CORRELATED and len(values) * (1.0 - phi) / (1.0 + phi) >= LEAST_EFFECTIVE_STEPS


def _correlate(values: Floats) -> float:
    centred = values - values.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())


MOST_WHOLE = 12
"""Pairs up to which all subsets are used. With more pairs, 2**MOST_WHOLE - 1 subsets are drawn with a fixed seed."""
WORTH_PAIRS = 100
"""The largest number of pairs that is worth recommending."""


def judge_pairs(base: Floats, new: Floats) -> Estimate:
    """Return the change between runs recorded in pairs, by the median step of each run.

    The bounds come from the sign test. With three or four pairs, they come from the t test, which assumes that the
    logarithms of the ratios are normal and independent.
    """
    by_t = compare_pairs(base, new)
    if len(base) < LEAST_PAIRS:
        return by_t
    ratios = np.log(new / base)
    members = _list_subsets(len(ratios))
    means = np.sort(members @ ratios / members.sum(axis=1))
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

    The ratios are assumed to be normal. With five pairs, all five must be slower. With more pairs, the figure is that
    of a t test at the same level, which finds nearly as much.
    """
    from scipy.special import nctdtrinc, ndtri, stdtrit

    if pairs == LEAST_PAIRS:
        return float(ndtri(POWER ** (1.0 / pairs)))
    level = math.floor(ALPHA * 2**pairs) / 2.0**pairs if LEAST_PAIRS < pairs <= MOST_WHOLE else ALPHA
    limit = stdtrit(pairs - 1.0, 1.0 - level)
    return float(nctdtrinc(pairs - 1.0, 1.0 - POWER, limit)) / math.sqrt(pairs)


def count_pairs(scatter: float, slowdown: float) -> int | None:
    """Return how many pairs of runs are needed to find a slowdown four times in five.

    `scatter` is the standard deviation between runs of a program. None if more than `WORTH_PAIRS` pairs are needed.
    """
    # Two pairs get no verdict.
    told = math.log1p(slowdown) / (math.sqrt(2.0) * math.log1p(scatter)) if scatter > 0.0 else math.inf
    return next((pairs for pairs in range(3, WORTH_PAIRS + 1) if find_detectable(pairs) <= told), None)


@derived()
def _list_subsets(count: int) -> Floats:
    """Return a row for each non-empty subset of `count` members: 1 for a member, 0 for the others.

    If there are many members, the rows are a random choice of subsets.
    """
    if count > MOST_WHOLE:
        members: Floats = (np.random.default_rng(count).random((2**MOST_WHOLE - 1, count)) < 0.5).astype(np.float64)
        return members[members.any(axis=1)]
    numbers = np.arange(1, 2**count)
    return ((numbers[:, None] >> np.arange(count)) & 1).astype(np.float64)
