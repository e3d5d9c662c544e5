"""What recording cost the training thread: the calls of a run times what one of each was timed to take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Overhead, Window
from collector.format.steps import summarize_steps

_COLUMNS = ("step", "kind", "duration_ns", "detailed", "batch", "loader_start_ns", "probed")
_MOST_ROWS = 5_000_000


def measure_overhead(
    timed: dict[str, Any], described: dict[str, Any], windows: tuple[Window, ...], sidecar_cpu_frac: float | None
) -> Overhead:
    """Return the cost of a step; without the times of the hooks only what is known otherwise.

    `described` has the calls of all training steps in `cost`, and in `mean_step_ns` the mean step that readers are given.
    """
    stall, cost = sum(window.stall_ns for window in windows), described.get("cost", {})
    steps, hooks = cost.get("steps", 0), timed.get("hook_ns")
    if not steps or not hooks:
        return Overhead(window_stall_ns=stall, sidecar_cpu_frac=sidecar_cpu_frac)
    total, low, high = _sum_hooks({name: calls / steps for name, calls in cost["calls"].items()}, hooks)
    mean_step = described.get("mean_step_ns") or cost["train_ns"] / steps
    share = total / mean_step if mean_step else None
    return Overhead(total, share, str(timed.get("how", "")), stall, sidecar_cpu_frac, low, high)


def find_mean_step(rank_folder: Path) -> float | None:
    """Return the mean step as the pages and reports of the run give it, None without training steps."""
    files = parts.find_files(rank_folder, "steps")
    try:
        if sum(parts.count_rows(path) for path in files) > _MOST_ROWS:
            return None
        found = summarize_steps(parts.read_files(files, "steps", _COLUMNS)).duration_ns
    except RunError:
        return None
    return found.mean if found is not None else None


def _sum_hooks(calls: dict[str, float], hooks: dict[str, Any]) -> tuple[float, float | None, float | None]:
    """Return the cost of the calls of a step and its bounds, which add up as independent errors do."""
    total, below, above = 0.0, 0.0, 0.0
    is_bounded = True
    for name, count in calls.items():
        times = hooks.get(name, 0.0)
        if not isinstance(times, Sequence):  # as 0.1.0 wrote it
            is_bounded = False
            times = (times, times, times)
        middle, low, high = times
        total += count * middle
        below += (count * (middle - low)) ** 2
        above += (count * (high - middle)) ** 2
    return (total, total - below**0.5, total + above**0.5) if is_bounded else (total, None, None)
