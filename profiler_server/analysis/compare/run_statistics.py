"""Is one list of runs slower than another? Tests that count how much identical runs differ from each other.

Steps of one run follow each other and share a machine, a cache and a moment: their scatter says little about the next
run of the same program. So the unit here is the run, told by the median of its steps, and never the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.intervals import Floats
from profiler_server.analysis.compare.chance import ALPHA, compare_means, correct_chances, measure_error
from profiler_server.diagnosis.limits.compare import LEAST_EFFECTIVE_STEPS, MOST_CORRELATED

POWER = 0.8
"""Chance with which a slowdown of the size that is called detectable is found."""


@dataclass(frozen=True)
class Estimate:
    """The ratio of two lists of runs less 1: `low` and `high` are its 95 % interval, `p` the chance that a list as slow
    as this one comes from the same program. The change is above `least`, and it is below `most`, each with 95 % certainty.

    `detectable` is the smallest slowdown that is found four times in five, `scatter` the noise floor: by how much one run
    of a program differs from the next (a standard deviation).
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
    """Compare runs that were recorded in pairs, from the median step of each: t on the logarithm of their ratios."""
    ratios = np.log(new / base)
    spread = float(ratios.std(ddof=1))
    return _judge(float(ratios.mean()), spread / math.sqrt(len(ratios)), len(ratios) - 1.0, spread / math.sqrt(2.0))


def compare_lists(base: Floats, new: Floats) -> Estimate:
    """Compare two lists of runs of any order and length, from the median step of each (Welch's t)."""
    a, b = np.log(base), np.log(new)
    error, freedom = measure_error(a, b)
    scatter = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2.0)
    return _judge(float(b.mean() - a.mean()), error, freedom, scatter)


def compare_with_known_scatter(base: float, new: float, like: Floats) -> Estimate:
    """Compare one run with another by the scatter of the median steps of other runs of the same program.

    It is slower only if it is slower than each of these, too: else a base that was quick by chance makes it so. Simulated
    with eight other runs, that brings false alarms from 5 to 3 % where runs scatter normally, and from 9 to 5 % where their
    tails are heaviest; of slowdowns it loses one in a hundred.
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
    """A phase or kernel whose mean per step changed by more than chance; `change_ns` is the mean difference."""

    name: str
    change_ns: float
    p: float


def find_changed_parts(
    base: Sequence[Mapping[str, float]], new: Sequence[Mapping[str, float]]
) -> tuple[PartChange, ...]:
    """Return the parts that changed, the largest change first (Welch's t on the runs, Holm's correction).

    A part that a run lacks took no time in it. A change of the whole that drowns in noise may be clear in a part.
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
    """Return the 95 % interval of the change of the median within one pair of runs, from blocks of steps drawn again.

    Blocks keep what steps that follow each other share. Their length follows from the correlation φ of one step with the
    next: ⌈1.5·((2φ/(1 − φ²))²·n)^⅓⌉.
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
    """Return the length of a block in steps, at least 1 and at most half of them."""
    if len(values) < 4 or not values.std():
        return 1
    phi = min(max(_correlate(values), 0.0), 0.99)
    length = math.ceil(1.5 * ((2 * phi / (1 - phi**2)) ** 2 * len(values)) ** (1 / 3))
    return int(min(max(length, 1), len(values) // 2))


def has_interval(values: Floats) -> bool:
    """Say whether the steps of a run are free enough of each other for an interval: φ at most 0.8, and at least 20
    steps' worth, n(1 − φ)/(1 + φ)."""
    if not values.std():
        return len(values) >= LEAST_EFFECTIVE_STEPS
    phi = max(_correlate(values), 0.0)
    return phi <= MOST_CORRELATED and len(values) * (1.0 - phi) / (1.0 + phi) >= LEAST_EFFECTIVE_STEPS


def _correlate(values: Floats) -> float:
    """Return the correlation of one step with the next."""
    centred = values - values.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
