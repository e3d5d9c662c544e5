"""Ranks that are worth seeing below each other: the one that is waited for, two that wait, and a step in which they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import judge_ranks, measure_waits
from profiler_server.facts.ranks import Example, find_noun

WAITING = 2
_MOST_DETAILED = 1_000
"""Steps of a window that are looked at; a manifest may come from anywhere."""


def prefer_detailed(example: Example | None, run: Run) -> Example | None:
    """Return the example with a step that all its ranks recorded in detail, the nearest one, if there is such a step."""
    if example is None or example.step is None:
        return example
    steps = [_read_detailed(run.read_rank(rank)) for rank in example.ranks]
    common = set.intersection(*steps)
    nearest = min(common, key=lambda step: (abs(step - (example.step or 0)), step), default=example.step)
    return replace(example, step=nearest)


def _read_detailed(rank: RankRun) -> set[int]:
    try:
        windows = rank.manifest.windows
    except RunError:
        return set()
    return {step for window in windows for step in range(window.first_step, window.last_step + 1)[:_MOST_DETAILED]}


def choose_example(ranks: Sequence[RankSummary]) -> Example | None:
    """Return the slowest rank and those that wait longest, with a usual step of theirs; None for fewer than two."""
    known = [rank.rank for rank in ranks if rank.steps]
    if len(known) < 2:
        return None
    comparison, waits = judge_ranks(ranks).comparison, measure_waits(ranks)
    if comparison is None or waits is None:
        return Example(tuple(known[: 1 + WAITING]), None)
    latest = comparison.latest.rank
    numbers, steps, waited = waits
    order = np.argsort(-waited.mean(axis=1), kind="stable")
    others = [numbers[row] for row in order.tolist() if numbers[row] != latest]
    chosen = (latest, *others[:WAITING])
    if find_noun(ranks) != "step":
        return Example(chosen, None)
    # A step in which it was the last, and they waited as long as they usually do.
    late = np.flatnonzero((waited[numbers.index(latest)] == 0) & (steps >= 0))
    longest = waited.max(axis=0)[late]
    usual = late[np.argsort(longest, kind="stable")[len(late) // 2]] if len(late) else None
    return Example(chosen, None if usual is None else int(steps[usual]))
