"""The time of each step in torch-tb-profiler's eight categories.

Where categories overlap, the time goes to the category of highest priority. Other gets the time that no category
covers, so the categories sum to the step exactly. (If the higher categories fill a step, torch-tb-profiler starts again
from the whole step. Its categories then sum to more than the step.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from collector.format.intervals import Intervals, Ints, Mask, unite
from collector.format.run import RankRun
from profiler_server.analysis.device.slices import (
    Texts,
    read_slices,
    read_steps,
    read_thread_tracks,
    release_slices,
    to_ints,
)
from profiler_server.derive.derived import derived

CATEGORY_LABELS: Mapping[str, str] = {
    "kernel": "Kernel",
    "memcpy": "Memcpy",
    "memset": "Memset",
    "communication": "Communication",
    "runtime": "Runtime",
    "dataloader": "DataLoader",
    "cpu_exec": "CPU Exec",
    "other": "Other",
}
"""Categories in order of priority, with torch-tb-profiler's spelling."""
CATEGORIES = tuple(CATEGORY_LABELS)
_LOADER = re.compile(r"enumerate\(DataLoader\)")
_STEP = re.compile(r"ProfilerStep\s*#")
_COLUMNS = ("track", "start_ns", "duration_ns", "name", "category")


def summarize_categories(rank: RankRun) -> dict[str, float] | None:
    """Return the mean time of each category per step in ns, or None without a trace. The times sum to the mean step.

    The mean covers the training steps that were recorded in detail. Raises TableBrokenError or NewerSchemaError.
    """
    steps = list_categories(rank)
    if steps is None:
        return None
    count = len(steps["other"])
    return {name: float(values.sum()) / count for name, values in steps.items()} if count else None


@derived(file="categories")
def list_categories(rank: RankRun) -> dict[str, Ints] | None:
    """Return the time in ns of each category, one value per step that was recorded in detail. None without a trace, or
    without a detailed step.
    """
    found = _find_categories(rank)
    if found is None:
        return None
    starts, ends = read_steps(rank)
    return _walk(_unite_each(*found), starts, ends) if len(starts) else None


def _find_categories(rank: RankRun) -> tuple[Ints, Ints, dict[str, Mask]] | None:
    """Return the start and end in ns of every slice (trace event), and for each category a mask of its slices, highest
    priority first. None without slices.

    The category Other has no mask.
    """
    data = read_slices(rank, _COLUMNS)
    if data is None:
        return None
    kinds, names = Texts(data["category"]), Texts(data["name"])
    loader = names.match(_LOADER.match)
    host = kinds.match(("operator", "annotation").__contains__) & ~names.match(_STEP.match)
    host &= np.isin(data["track"].to_numpy(), read_thread_tracks(rank))
    masks = {name: kinds.match(name.__eq__) for name in ("kernel", "memcpy", "memset", "communication", "runtime")}
    masks |= {"dataloader": host & loader, "cpu_exec": host & ~loader}
    starts = to_ints(data["start_ns"])
    return starts, starts + to_ints(data["duration_ns"]), masks


def _unite_each(starts: Ints, ends: Ints, masks: Mapping[str, Mask]) -> dict[str, Intervals]:
    release_slices()
    return {name: unite(starts[mask], ends[mask]) for name, mask in masks.items()}


def _walk(busy: dict[str, Intervals], starts: Ints, ends: Ints) -> dict[str, Ints]:
    """Return the time of each category in each step. `busy` has the categories in order of priority."""
    left = unite(starts, ends)
    parts: dict[str, Ints] = {}
    for name, intervals in busy.items():
        parts[name] = _sum_inside(left & intervals, starts, ends)
        left = left - intervals
    parts["other"] = _sum_inside(left, starts, ends)
    return parts


def _sum_inside(intervals: Intervals, starts: Ints, ends: Ints) -> Ints:
    return intervals.measure_before(ends) - intervals.measure_before(starts)
