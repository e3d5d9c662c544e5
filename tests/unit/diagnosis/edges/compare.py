"""Thresholds of the comparison of runs and of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from profiler_server.analysis.compare.comparison import _describe_loop, _describe_median, _name_cause
from profiler_server.analysis.compare.gate import _estimate_few, _find_unfit, judge
from profiler_server.analysis.compare.run_statistics import compare_pairs, has_interval, judge_pairs
from profiler_server.analysis.compare.run_times import RunTimes, name_load
from tests.unit.diagnosis.edges.base import Edge, whole


def compared(change_ns: float = -1.0, **fields: Any) -> Any:
    """Return a comparison of which the mean step changed so much, as far as its sentences read it."""
    return SimpleNamespace(step=SimpleNamespace(change_ns=change_ns, a_ns=1e9), noun="step", **fields)


def names_cause(share: float) -> bool:
    phase = SimpleNamespace(name="Forward", is_clear=True, change_ns=share * 1e9)
    return bool(_name_cause(compared(1e9, phases=[phase])))


def run(steps: int = 20) -> Any:
    return SimpleNamespace(name="run", steps_ns=np.full(steps, 1e6) + np.arange(steps))


def is_judged(count: int) -> bool:
    """Judge lists of so many runs of one program."""
    base, new = (
        [
            RunTimes(
                script="train.py",
                host="here",
                world_size=1,
                rank=0,
                name="run",
                started_unix_ns=2 * n + side,
                steps_ns=np.full(20, 1e6 + n + side),
                parts_ns={},
            )
            for n in range(count)
        ]
        for side in (0, 1)
    )
    return judge(base, new).estimate is not None


def is_resampled(pairs: int) -> bool:
    base, new = (np.array([100.0 + late + n % 3 * (1 + late) for n in range(pairs)], np.float64) for late in (0, 1))
    return judge_pairs(base, new) != compare_pairs(base, new)


EDGES: Mapping[str, Edge] = {
    "CAUSE_FRAC": Edge(0.25, names_cause),
    "WHOLE_LOOP_FRAC": Edge(
        0.05, lambda x: bool(_describe_loop(compared(0.0, a_loop_ns=1e9, b_loop_ns=1e9 * (1 + x))))
    ),
    "MEDIAN_FRAC": Edge(0.01, lambda x: bool(_describe_median(compared(a_median_ns=1e9, b_median_ns=1e9 * (1 + x))))),
    "LEAST_LIKE": Edge(
        5, lambda x: _estimate_few([run()], [run()], [run(10 + n) for n in range(whole(x))]) is not None
    ),
    "COMPARED_STEPS": Edge(10, lambda x: not _find_unfit([run(whole(x))])),
    "LEAST_RUNS": Edge(3, lambda x: is_judged(whole(x))),
    "LEAST_PAIRS": Edge(5, lambda x: is_resampled(whole(x))),
    "LEAST_EFFECTIVE_STEPS": Edge(20, lambda x: has_interval(np.full(whole(x), 1e6))),
    "BUSY_FRAC": Edge(0.25, lambda x: bool(name_load("A", 4.0 * x, 4.0))),
}
