"""The composition of step time: its eight categories, stacked per step, and its critical path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from profiler_server.analysis.accounting.categories import CATEGORIES, CATEGORY_LABELS, list_categories
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.derive.derived import NotReady
from profiler_server.diagnosis.readings import say_host_waits
from profiler_server.figures import Axes, Chart, Stack, build_stack
from profiler_server.format import format_duration, format_number_of, shorten_middle
from profiler_server.widgets import Part, build_parts

COLORS: Mapping[str, str] = {
    "kernel": "compute",
    "memcpy": "copy",
    "memset": "backward",
    "communication": "communication",
    "runtime": "overlap",
    "dataloader": "data",
    "cpu_exec": "host",
    "other": "idle",
}
MEANING: Mapping[str, str] = {
    "kernel": "a kernel runs that belongs to no collective",
    "memcpy": "a copy runs, and no kernel",
    "memset": "memory is set, and nothing above runs",
    "communication": "a collective runs, and nothing above",
    "runtime": "the host is in a call of the device's runtime or driver, and the device idles",
    "dataloader": "the host waits for the DataLoader, and nothing above",
    "cpu_exec": "the host is in another operator or annotation",
    "other": "none of these",
}
ON_DEVICE = ("kernel", "memcpy", "memset", "communication", "runtime")
TABLE_STEPS = 200


@dataclass(frozen=True)
class Breakdown:
    """`sentence` names the steps; `total` is the mean step, which the categories sum to.

    `is_on_device` is True if any of the step time was on a device, or in a call to a device.
    """

    sentence: str
    total: str
    parts: tuple[Part, ...]
    chart: Chart
    is_on_device: bool


def build_breakdown(rank: RankRun) -> Breakdown | NotReady | None:
    """Build the breakdown; None without a detailed step. Raises as `RankRun.table` does."""
    categories = list_categories.peek(rank)
    if isinstance(categories, NotReady):
        return categories
    numbers = _read_numbers(rank)
    if categories is None or not len(numbers):
        return None
    means = [float(categories[name].mean()) for name in CATEGORIES]
    total = sum(means)
    parts = build_parts(((CATEGORY_LABELS[name], COLORS[name], MEANING[name]) for name in CATEGORIES), means, total)
    present = {name: categories[name] for name in CATEGORIES if categories[name].any()}
    figure = build_stack(Stack(numbers, present, COLORS, CATEGORY_LABELS), Axes(x_range=_span(numbers)))
    rows = tuple(
        (str(number), *(format_duration(int(categories[name][at])) for name in CATEGORIES))
        for at, number in enumerate(numbers[:TABLE_STEPS].tolist())
    )
    chart = Chart(
        id="device-categories",
        title="Every step",
        caption="Each nanosecond of a step belongs to the first category of the list that was at work, so the parts sum to it.",
        figure=figure,
        columns=("Step", *CATEGORY_LABELS.values()),
        rows=rows,
    )
    on_device = any(name in present for name in ON_DEVICE)
    return Breakdown(
        f"Mean of {format_number_of(len(numbers), 'step')}.", format_duration(total), parts, chart, on_device
    )


def _read_numbers(rank: RankRun) -> np.ndarray:
    data = rank.table("steps", columns=["step", "kind", "start_ns", "detailed"])
    data = data.filter(pc.and_(pc.equal(data["kind"].cast(pa.string()), "train"), data["detailed"]))
    return np.asarray(data["step"].to_numpy(), np.int64)


def _span(numbers: np.ndarray) -> tuple[float, float]:
    return float(numbers[0]) - 0.5, float(numbers[-1]) + 0.5


WAIT_LABELS: Mapping[str, str] = {
    "compute": "Computing",
    "communication": "Communication",
    "copy": "Copies",
    "launch": "Launching",
    "sync": "Synchronising",
    "operator": "Operators on the host",
    "python": "Python",
    "loading": "Loading data",
    "unknown": "Not known",
}
WAIT_COLORS: Mapping[str, str] = {
    "compute": "compute",
    "communication": "communication",
    "copy": "copy",
    "launch": "overlap",
    "sync": "worse",
    "operator": "host",
    "python": "optimizer",
    "loading": "data",
    "unknown": "idle",
}
WAIT_MEANING: Mapping[str, str] = {
    "compute": "kernels that the next work waits for",
    "communication": "collectives that the next work waits for",
    "copy": "copies that the next work waits for",
    "launch": "calls of the device's runtime, and the way from them to the device and from kernel to kernel",
    "sync": "calls that return after the work that they waited for has ended",
    "operator": "operators on the host, outside of such calls",
    "python": "the host outside of operators",
    "loading": "the host waits for the DataLoader",
    "unknown": "work that begins later than anything that is known explains",
}
_NAME_LENGTH = 60


@dataclass(frozen=True)
class CriticalTable:
    """`total` is the mean step, which the categories sum to; `sentence` names the steps."""

    sentence: str
    total: str
    parts: tuple[Part, ...]


def build_critical(rank: RankRun) -> CriticalTable | NotReady | None:
    """Build the table; None if no launch is linked to its work. Raises as `RankRun.table` does."""
    path = find_critical_path.peek(rank)
    if path is None or isinstance(path, NotReady):
        return path
    sums = path.sum_kinds()
    total = sum(sums.values())
    if not total:
        return None
    present = {kind: length / path.steps for kind, length in sums.items() if length}
    words = ((WAIT_LABELS[kind], WAIT_COLORS[kind], _describe(kind, path.examples.get(kind, ()))) for kind in present)
    parts = build_parts(words, present.values(), total / path.steps)
    last = f"the last {format_number_of(path.steps, 'step')}" if path.left_out else format_number_of(path.steps, "step")
    waits = say_host_waits(path.host_waits)
    return CriticalTable(f"{waits} Mean of {last}.".lstrip(), format_duration(total / path.steps), parts)


def _describe(kind: str, examples: tuple[str, ...]) -> str:
    names = ", ".join(shorten_middle(name, _NAME_LENGTH) for name in examples)
    return f"{WAIT_MEANING[kind]}: {names}" if names and kind != "unknown" else WAIT_MEANING[kind]
