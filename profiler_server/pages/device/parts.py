"""The parts of the Device page on step time: eight categories, per step and averaged, and the critical path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.steps import is_kind
from profiler_server.analysis.accounting.categories import CATEGORIES, CATEGORY_LABELS, list_categories
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.derive.derived import NotReady
from profiler_server.diagnosis.readings import say_host_waits
from profiler_server.figures import Axes, Chart, Stack, build_stack
from profiler_server.format import format_duration, format_number_of, shorten_middle
from profiler_server.widgets import Part, build_parts

_CATEGORIES: Mapping[str, tuple[str, str]] = {
    "kernel": ("compute", "a kernel runs that belongs to no collective"),
    "memcpy": ("copy", "a copy runs, and no kernel"),
    "memset": ("backward", "memory is set, and nothing above runs"),
    "communication": ("communication", "a collective runs, and nothing above"),
    "runtime": ("overlap", "the host is in a call of the device's runtime or driver, and the device idles"),
    "dataloader": ("data", "the host waits for the DataLoader, and nothing above"),
    "cpu_exec": ("host", "the host is in another operator or annotation"),
    "other": ("idle", "none of these"),
}
"""Colour and meaning of each category."""
ON_DEVICE = ("kernel", "memcpy", "memset", "communication", "runtime")
TABLE_STEPS = 200


@dataclass(frozen=True)
class Breakdown:
    """The mean step, as categories (`parts`) that sum to `total`. `sentence` says how many steps the mean covers.

    `is_on_device` is True if any of the step time was work of a device, or a call to the device's runtime.
    """

    sentence: str
    total: str
    parts: tuple[Part, ...]
    chart: Chart
    is_on_device: bool


def build_breakdown(rank: RankRun) -> Breakdown | NotReady | None:
    """Return the breakdown of the mean step; None if no step was recorded in detail. Raises as `RankRun.table` does."""
    categories = list_categories.peek(rank)
    if isinstance(categories, NotReady):
        return categories
    steps = rank.table("steps", columns=["step", "kind", "start_ns", "detailed"])
    steps = steps.filter(pc.and_(is_kind(steps, "train"), steps["detailed"]))
    numbers = np.asarray(steps["step"].to_numpy(), np.int64)
    if categories is None or not len(numbers):
        return None
    means = [float(categories[name].mean()) for name in CATEGORIES]
    total = sum(means)
    parts = build_parts(((CATEGORY_LABELS[name], *_CATEGORIES[name]) for name in CATEGORIES), means, total)
    present = {name: categories[name] for name in CATEGORIES if categories[name].any()}
    colors = {name: color for name, (color, _) in _CATEGORIES.items()}
    span = (float(numbers[0]) - 0.5, float(numbers[-1]) + 0.5)
    rows = tuple(
        (str(number), *(format_duration(int(categories[name][at])) for name in CATEGORIES))
        for at, number in enumerate(numbers[:TABLE_STEPS].tolist())
    )
    chart = Chart(
        id="device-categories",
        title="Every step",
        caption="Each nanosecond of a step belongs to the first category of the list that was at work, so the parts sum to it.",
        figure=build_stack(Stack(numbers, present, colors, CATEGORY_LABELS), Axes(x_range=span)),
        columns=("Step", *CATEGORY_LABELS.values()),
        rows=rows,
    )
    on_device = any(name in present for name in ON_DEVICE)
    return Breakdown(
        f"Mean of {format_number_of(len(numbers), 'step')}.", format_duration(total), parts, chart, on_device
    )


_LAUNCH = "calls of the device's runtime, and the way from them to the device and from kernel to kernel"
_WAITS: Mapping[str, tuple[str, str, str]] = {
    "compute": ("Computing", "compute", "kernels that the next work waits for"),
    "communication": ("Communication", "communication", "collectives that the next work waits for"),
    "copy": ("Copies", "copy", "copies that the next work waits for"),
    "launch": ("Launching", "overlap", _LAUNCH),
    "sync": ("Synchronising", "worse", "calls that return after the work that they waited for has ended"),
    "operator": ("Operators on the host", "host", "operators on the host, outside of such calls"),
    "python": ("Python", "optimizer", "the host outside of operators"),
    "loading": ("Loading data", "data", "the host waits for the DataLoader"),
    "unknown": ("Not known", "idle", "work that begins later than anything that is known explains"),
}
"""Label, colour and meaning of each kind of work on the critical path."""
_NAME_LENGTH = 60


@dataclass(frozen=True)
class CriticalTable:
    """The mean time on the critical path by kind of work, which sums to `total`. `sentence` says which steps count."""

    sentence: str
    total: str
    parts: tuple[Part, ...]


def build_critical(rank: RankRun) -> CriticalTable | NotReady | None:
    """Return the critical path of the mean step; None if no launch is linked to its work. Raises as `RankRun.table`."""
    path = find_critical_path.peek(rank)
    if path is None or isinstance(path, NotReady):
        return path
    sums = path.sum_kinds()
    total = sum(sums.values())
    if not total:
        return None
    present = {kind: length / path.steps for kind, length in sums.items() if length}
    words = (_describe(kind, path.examples.get(kind, ())) for kind in present)
    parts = build_parts(words, present.values(), total / path.steps)
    last = f"the last {format_number_of(path.steps, 'step')}" if path.left_out else format_number_of(path.steps, "step")
    waits = say_host_waits(path.host_waits)
    return CriticalTable(f"{waits} Mean of {last}.".lstrip(), format_duration(total / path.steps), parts)


def _describe(kind: str, examples: tuple[str, ...]) -> tuple[str, str, str]:
    label, color, meaning = _WAITS[kind]
    names = ", ".join(shorten_middle(name, _NAME_LENGTH) for name in examples)
    return label, color, f"{meaning}: {names}" if names and kind != "unknown" else meaning
