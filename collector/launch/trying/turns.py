"""The turns of a trial's process, and their comparison with those of the unchanged script."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

_CUT_FRAC = 0.125
"""The share of the comparisons left out at both ends: in these, another program delayed one of the two sides."""
_UNKNOWN = 0.1
"""The assumed standard deviation of a comparison with only one round."""
LONGEST_LOG = math.log(1000.0)
"""The limit for the logarithm of a ratio: no step is counted as more than a thousand times as long."""


@dataclass(frozen=True)
class Turn:
    """What a process did in a turn: the time of each update in ns, and the losses. `is_over`: the script has ended."""

    steps_ns: tuple[float, ...]
    losses: tuple[float, ...] = ()
    is_over: bool = False


def compare_turns(found: Turn, base: Turn) -> float:
    """Return log(time of `found` / time of `base`), over the updates that both turns have."""
    pairs = list(zip(found.steps_ns, base.steps_ns, strict=False))
    ours, theirs = (sum(side) for side in zip(*pairs, strict=True))
    return max(-LONGEST_LOG, min(math.log(ours / theirs), LONGEST_LOG))


@dataclass
class Life:
    """The results of one process: its turns, and `logs`: of each compared turn, log(its time / the unchanged script's
    time in the same round). The first turn is warm-up and not compared."""

    turns: list[Turn] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)

    @property
    def step_ns(self) -> float:
        turns = [turn.steps_ns for turn in self.turns if turn.steps_ns]
        return statistics.median(statistics.fmean(steps_ns) for steps_ns in turns[1:] or turns)

    @property
    def losses(self) -> list[float]:
        return [loss for turn in self.turns for loss in turn.losses]


def estimate(logs: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean of the logarithms, its standard error and degrees of freedom (Tukey and McLaughlin 1963).
    The error of a single logarithm is assumed."""
    count, cut = len(logs), int(_CUT_FRAC * len(logs))
    if count < 2:
        return logs[0], _UNKNOWN, 1
    ordered = sorted(logs)
    kept = ordered[cut : count - cut]
    moved = [kept[0]] * cut + kept + [kept[-1]] * cut
    return statistics.fmean(kept), statistics.stdev(moved) * math.sqrt(count) / len(kept), len(kept) - 1
