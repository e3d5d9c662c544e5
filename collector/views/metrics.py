"""The figures of a run as flat numbers, under names that experiment trackers take."""

from __future__ import annotations

from collector.format.evaluation import read_step_rows
from collector.format.rank import RankRun
from collector.format.steps import summarize_phases, summarize_steps

PREFIX = "stepscope/"


def flatten_figures(rank: RankRun) -> dict[str, float]:
    """Return what `Run.metrics` does. Raises as `RankRun.table` does."""
    rows = read_step_rows(rank).steps
    summary, phases = summarize_steps(rows), summarize_phases(rows)
    found = {"steps": float(summary.count)}
    if (times := summary.duration_ns) is not None:
        found |= {"step_seconds": times.mean / 1e9}
        ranked = (("p50", times.p50), ("p99", times.p99))
        found |= {f"step_seconds_{name}": value / 1e9 for name, value in ranked if value is not None}
    for phase in phases:
        found[f"phase_seconds/{phase.name}"] = phase.mean_ns / 1e9
        if phase.name == "data_wait":
            found["data_wait_ratio"] = phase.share_frac
    return {f"{PREFIX}{name}": value for name, value in found.items()}
