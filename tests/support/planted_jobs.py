"""Jobs with a known culprit, of every size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.support.jobs import JobPlan

RANKS = (2, 3, 4, 8, 16, 64, 256, 1024)
PHASES = ("data_wait", "h2d", "forward", "backward", "optimizer")
HOUR_NS = 3_600_000_000_000


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
        yield replace(common, slow=(int(random.integers(ranks)),), slow_frac=slow_frac, phase=phase)
        yield replace(common, takes_turns=True, slow_frac=max(slow_frac, 0.2), phase=phase, steps=80)
