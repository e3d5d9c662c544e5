"""Cases with a known culprit, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.analysis.what_if.pipelines import gather_steps
from profiler_server.analysis.what_if.steps import weigh_steps
from profiler_server.facts.job import Slow, Turns
from tests.support.jobs import JobPlan, make_job, summarize_job

RANKS = (2, 3, 4, 8, 16, 64, 256, 1024)
PHASES = ("data_wait", "h2d", "forward", "backward", "optimizer")
HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True)
class Result:
    """What was found: whether it is right, and the slowdown over the planted one."""

    plan: JobPlan
    is_right: bool
    said: str
    slowdown_ratio: float | None


def plan_cases(seed: int, sizes: tuple[int, ...] = RANKS) -> Iterator[JobPlan]:
    """Yield for every size a job that is even, one with a fixed straggler, and one in which ranks take turns."""
    for ranks in sizes:
        random = np.random.default_rng((seed, ranks))
        common = JobPlan(
            ranks=ranks,
            steps=int(random.integers(20, 81)),
            seed=int(random.integers(1 << 30)),
            calls=int(random.choice((1, 1, 2, 4))),
            noise_frac=float(random.uniform(0.002, 0.02)),
            ranks_per_host=8,
            apart_ns=float(random.choice((0.0, 1e6, 4 * HOUR_NS))),
            drift=float(random.choice((0.0, 2e-5))),
        )
        slow_frac = float(random.uniform(0.08, 0.6))
        phase = str(random.choice(PHASES))
        yield common
        yield _vary(common, slow=(int(random.integers(ranks)),), slow_frac=slow_frac, phase=phase)
        yield _vary(common, takes_turns=True, slow_frac=max(slow_frac, 0.2), phase=phase, steps=80)


def _vary(plan: JobPlan, **changes: object) -> JobPlan:
    from dataclasses import replace

    return replace(plan, **changes)  # type: ignore[arg-type]


def check_case(plan: JobPlan) -> Result:
    """Judge a job as the server does, and compare with what was planted."""
    job = make_job(plan)
    ranks = summarize_job(job)
    found = judge_ranks(ranks)
    assert found.comparison is not None
    named = found.culprits[0] if isinstance(found, Slow) else None
    causes = found.comparison.latest.causes
    cause, turns = causes[0].name if causes else "", isinstance(found, Turns)
    right_rank, right_turns = named in (plan.slow or (None,)), turns == plan.takes_turns
    is_right = right_rank and right_turns and (not plan.slow or cause == plan.phase)
    weighed = weigh_steps(gather_steps({rank.rank: rank.together for rank in ranks}))
    ratio = weighed.slowdown / job.slowdown if weighed.slowdown is not None else None
    return Result(plan, is_right, f"named {named} ({cause}), turns {turns}", ratio)
