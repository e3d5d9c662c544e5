"""Ranks that are worth seeing below each other: the one that is waited for, two that wait, and a step in which they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_server.analysis.ranks.ranks import RankSummary, find_noun
from profiler_server.analysis.ranks.stragglers import judge_ranks, measure_waits

WAITING = 2


@dataclass(frozen=True)
class Example:
    """Ranks, the one that is waited for first; `step` is None where no step is known in which all of them met."""

    ranks: tuple[int, ...]
    step: int | None


def choose_example(ranks: Sequence[RankSummary]) -> Example | None:
    """Return the slowest rank and those that wait longest, with a usual step of theirs; None for fewer than two."""
    known = [rank.rank for rank in ranks if rank.steps]
    if len(known) < 2:
        return None
    straggler, waits = judge_ranks(ranks).straggler, measure_waits(ranks)
    if straggler is None or waits is None:
        return Example(tuple(known[: 1 + WAITING]), None)
    numbers, steps, waited = waits
    order = np.argsort(-waited.mean(axis=1), kind="stable")
    others = [numbers[row] for row in order.tolist() if numbers[row] != straggler.rank]
    chosen = (straggler.rank, *others[:WAITING])
    if find_noun(ranks) != "step":
        return Example(chosen, None)
    # A step in which it was the last, and they waited as long as they usually do.
    late = np.flatnonzero((waited[numbers.index(straggler.rank)] == 0) & (steps >= 0))
    longest = waited.max(axis=0)[late]
    usual = late[np.argsort(longest, kind="stable")[len(late) // 2]] if len(late) else None
    return Example(chosen, None if usual is None else int(steps[usual]))
