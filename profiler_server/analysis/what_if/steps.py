"""The what-if analysis of a data-parallel job from its steps alone. The ranks are taken to meet once in each step.

Own work C of a rank is its step without the time held in collectives; X is that held time. The job's step lasts as long
as the slowest rank works, plus the shortest communication: T = max C + min X. In the ideal job every rank works for the
mean of C over the ranks in the same step, and the communication is the median of min X over the steps. A step that is
long on all ranks stays long, and no rank is to blame for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.diagnosis.limits.stragglers import LEAST_WEIGHED_STEPS, MOST_DISCREPANCY, WORST_PERCENT
from profiler_server.facts.ranks import JobSlowdown
from profiler_server.format import format_share


def distrust(discrepancy: float, method: Literal["replay", "steps"]) -> JobSlowdown:
    """Return the answer for a model that does not reproduce the measured steps: a reason, and no figures."""
    text = (
        f"The modelled steps differ from the measured ones by {format_share(abs(discrepancy))}; what-if figures are given up to "
        f"{format_share(MOST_DISCREPANCY)}."
    )
    return JobSlowdown(discrepancy_frac=discrepancy, method=method, reason=text)


def choose_worst(by_rank: Mapping[int, float]) -> set[int]:
    """Return the worst 3 % of the ranks by their slowdown S, at least one rank."""
    count = -(-len(by_rank) * WORST_PERCENT // 100)
    return set(sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))[:count])


def weigh_steps(ranks: Ints, step_ns: Floats, held_ns: Floats, phases_ns: Mapping[str, Floats]) -> JobSlowdown:
    """Return the slowdown of a job compared with ranks that are alike, and its causes; or the reason why there are
    no such figures.

    Times are (ranks, steps) of the steps that every rank has; `held_ns` is time held in collectives. `phases_ns` is the
    own work (without collectives) by phase.
    """
    count, steps = step_ns.shape
    if count < 2 or steps < LEAST_WEIGHED_STEPS:
        return JobSlowdown(
            reason=f"It takes two ranks with {LEAST_WEIGHED_STEPS} steps in common; there are {count} with {steps}."
        )
    if not held_ns.any():
        reason = "No rank was seen to be held in a collective, so working and waiting for others cannot be told apart."
        return JobSlowdown(reason=reason)
    model = _Model(step_ns - held_ns, held_ns)
    discrepancy = float(step_ns.mean()) / model.base - 1.0
    if abs(discrepancy) >= MOST_DISCREPANCY:
        return distrust(discrepancy, "steps")
    by_rank = {rank: model.keep_work(model.own[row]) for row, rank in enumerate(ranks.tolist())}
    worst = np.flatnonzero(np.isin(ranks, list(choose_worst(by_rank))))
    slowdown, lost = model.base / model.best, model.base - model.best
    by_phase = {
        name: (float((model.even - values.mean(axis=0) + values).max(axis=0).mean()) + model.usual_held) / model.best
        for name, values in phases_ns.items()
        if values.any()
    }
    return JobSlowdown(
        slowdown=slowdown,
        waste_frac=1.0 - 1.0 / slowdown,
        discrepancy_frac=discrepancy,
        by_operation={**by_phase, "communication": (float(model.even.mean()) + model.mean_held) / model.best},
        by_rank=by_rank,
        worker_share=(model.base - model.mend(worst)) / lost if lost > 0 else None,
    )


class _Model:
    def __init__(self, own_ns: Floats, held_ns: Floats) -> None:
        self.own = own_ns
        self.even = own_ns.mean(axis=0)
        held = held_ns.min(axis=0)
        self.usual_held, self.mean_held = float(np.median(held)), float(held.mean())
        self.base = float(own_ns.max(axis=0).mean()) + self.mean_held
        self.best = float(self.even.mean()) + self.usual_held

    def keep_work(self, own_ns: Floats) -> float:
        """Return the slowdown S if one rank or kind of work is as measured, and all others are ideal. `own_ns` is the
        longest own work in each step.
        """
        return (float(np.maximum(own_ns, self.even).mean()) + self.usual_held) / self.best

    def mend(self, rows: Ints) -> float:
        """Return the mean step in ns if no rank at the indexes `rows` worked longer than the mean of all ranks in each
        step.
        """
        own = self.own.copy()
        own[rows] = np.minimum(own[rows], self.even)
        return float(own.max(axis=0).mean()) + self.mean_held
