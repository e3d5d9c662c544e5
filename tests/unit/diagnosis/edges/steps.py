"""Thresholds of which steps stand out, and of what is told of how steady they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa

from collector.format.parts import build_table_from_rows
from collector.format.steps import StepSelection, select_steps
from profiler_server.analysis.change_points import find_shift
from profiler_server.analysis.steps.outliers import list_outliers
from profiler_server.analysis.steps.step_figures import Beyond, find_beyond, summarize_spread, summarize_stability
from tests.support.runs import MS, RunPlan, build_steps
from tests.unit.diagnosis.edges.base import Edge, whole


def average(durations_ms: Sequence[float], tails_ms: Sequence[float] = ()) -> pa.Table:
    """Return steps of which those of an average take so long, in their forward but for their tail."""
    rows = build_steps(RunPlan(steps=len(durations_ms) + 60))
    kept = np.flatnonzero(select_steps(build_table_from_rows("steps", rows)).kept)[: len(durations_ms)]
    for place, at in enumerate(kept.tolist()):
        tail_ns = round(tails_ms[place] * MS) if tails_ms else 0
        rows[at] |= {name: 0 for name in rows[at] if name.endswith("_ns") and name != "start_ns"}
        rows[at] |= {"duration_ns": round(durations_ms[place] * MS), "tail_ns": tail_ns}
        rows[at]["forward_ns"] = rows[at]["duration_ns"] - tail_ns
    table = build_table_from_rows("steps", rows[: int(kept[-1]) + 1])
    assert int(select_steps(table).kept.sum()) == len(durations_ms)
    return table


def stands_out(usual_ms: Sequence[float], long_ms: float) -> bool:
    found = list_outliers(average([*usual_ms, long_ms]))
    assert found.limit_ns is not None
    return long_ms * MS > found.limit_ns


def cut(*times: float) -> Beyond | None:
    """Return what a picture leaves out of sixty steps of 100,000 and of others."""
    durations = np.array([100_000] * 60 + [round(time) for time in times])
    return find_beyond(cast(StepSelection, SimpleNamespace(duration_ns=durations, step=np.arange(len(durations)))))


def cuts(count: int, *times: float) -> bool:
    found = cut(*times)
    return found is not None and len(found.step) == count


def shifts(steps: int) -> bool:
    return find_shift(np.where(np.arange(steps) < steps // 2, 100, 200)) is not None


def carries(count: int, share: float) -> bool:
    """Say whether one of so many steps carries a tail of which it has this share."""
    rest = (1 - share) / (count - 1)
    spread = summarize_spread(average([100.0] * count, [*[20 * rest] * (count - 1), 20 * share]))
    return any(row.name == "tail" and row.carrier is not None for row in spread)


EDGES: Mapping[str, Edge] = {
    "EXCESS_FRAC": Edge(0.25, lambda x: stands_out([100.0] * 60, 100.0 * (1 + x))),
    "DEVIATIONS": Edge(6.0, lambda x: stands_out([*[90.0, 110.0] * 30, *[100.0] * 3], 100.0 + x * 14.826)),
    "BULK_RATIO": Edge(2.0, lambda x: stands_out([50.0, 150.0] * 30, 150.0 * x)),
    "LEAST_USUAL": Edge(10, lambda x: list_outliers(average([100.0] * whole(x))).limit_ns is not None),
    "FAR_RATIO": Edge(8.0, lambda x: cut(100_000 * x) is not None),
    "CUT_RATIO": Edge(4.0, lambda x: cuts(2, 2_000_000, 100_000 * x)),
    "LEAST_BLOCK": Edge(5, lambda x: shifts(whole(16 * x))),
    "LEAST_BLOCKS": Edge(16, lambda x: shifts(whole(5 * x))),
    "TREND_STEPS": Edge(40, lambda x: summarize_stability(average([100.0] * whole(x))).trend_frac is not None),
    "CARRIED_STEPS": Edge(10, lambda x: carries(whole(x), 0.9)),
    "CARRIED_FRAC": Edge(0.5, lambda x: carries(20, x)),
}
