"""The Device page: the composition of step time, how busy each device was, and how the host launched its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.steps import is_kind
from profiler_server.analysis.accounting.categories import CATEGORIES, CATEGORY_LABELS, list_categories
from profiler_server.analysis.operators.kernels import shorten_kernel
from profiler_server.analysis.replay.critical import ON_HOST, find_critical_path
from profiler_server.derive.derived import NotReady
from profiler_server.diagnosis.readings import name_host_work, say_host_waits
from profiler_server.figures.charts import Axes, Chart, Stack, build_stack
from profiler_server.format import fill_in, format_duration, format_number_of, format_share, shorten_middle
from profiler_server.page import (
    WINDOW_REMEDY,
    Notice,
    Page,
    PageRequest,
    build_part,
    choose_remedy,
    explain_absence,
    explain_import,
)
from profiler_server.pages.device.panels import DevicePanel, build_panels
from profiler_server.widgets import Part, build_parts

NO_DEVICE = (
    "Nothing ran on an accelerator while this run was recorded in detail, so there is no kernel, copy or stream to show. "
    "That is as it should be for a run on the CPU: {Noun} trace and Operators tell where its time goes. To see a "
    "device here, run it on a machine with one, with the model and its batches moved to it."
)
NO_KERNEL = (
    "No kernel, copy or stream was recorded, although this run had a device: {devices}. Either nothing ran on it in the "
    "recorded steps, or its work could not be traced: another profiler held the device, or the driver forbids it. Move "
    "the model and its batches to it, end other profilers of the device, and record again."
)
MOVE_REMEDY = "model = model.to(device)\nfor batch in loader:\n    batch = batch.to(device, non_blocking=True)"


_CATEGORIES: Mapping[str, tuple[str, str]] = {
    "kernel": ("compute", "kernels, collectives aside"),
    "memcpy": ("copy", "copies without a kernel beside them"),
    "memset": ("backward", "setting memory, with nothing above"),
    "communication": ("communication", "collectives, with nothing above"),
    "runtime": ("overlap", "calls of the device's runtime or driver while the device idles"),
    "dataloader": ("data", "waiting for the DataLoader, with nothing above"),
    "cpu_exec": ("host", "other operators and annotations of the host"),
    "other": ("idle", "none of these"),
}
"""Colour and meaning of each category."""
ON_DEVICE = ("kernel", "memcpy", "memset", "communication", "runtime")
TABLE_STEPS = 200


@dataclass(frozen=True)
class Breakdown:
    """The mean step, as categories (`parts`) that sum to `total`. `sentence` says how many steps the mean covers.
    `chart` is None for a single step.

    `is_on_device` is True if any of the step time was work of a device, or a call to the device's runtime.
    """

    sentence: str
    total: str
    parts: tuple[Part, ...]
    chart: Chart | None
    is_on_device: bool


def build_breakdown(rank: RankRun) -> Breakdown | NotReady | None:
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
        caption="Each moment of a step belongs to the first category of the list that was at work. The parts sum to the step.",
        figure=build_stack(Stack(numbers, present, colors, CATEGORY_LABELS), Axes(x_range=span)),
        columns=("Step", *CATEGORY_LABELS.values()),
        rows=rows,
    )
    on_device = any(name in present for name in ON_DEVICE)
    return Breakdown(
        f"Mean of {format_number_of(len(numbers), 'step')}.",
        format_duration(total),
        parts,
        chart if len(numbers) > 1 else None,
        on_device,
    )


_LAUNCH = "calls of the device's runtime, and the delay from a call to its work and between kernels"
_WAITS: Mapping[str, tuple[str, str, str]] = {
    "compute": ("Computing", "compute", "kernels"),
    "communication": ("Communication", "communication", "collectives"),
    "copy": ("Copies", "copy", "copies"),
    "launch": ("Launching", "overlap", _LAUNCH),
    "sync": ("Synchronising", "worse", "calls of the host that wait for the device"),
    "operator": ("Operators on the host", "host", "operators of the host"),
    "python": ("Python", "optimizer", "the host outside of operators"),
    "loading": ("Loading data", "data", "waiting for the DataLoader"),
    "unknown": ("Not known", "idle", "work that began later than any known cause explains"),
}
"""Label, colour and meaning of each kind of work on the critical path."""
_NAME_LENGTH = 60


@dataclass(frozen=True)
class CriticalTable:
    """The mean time on the critical path by kind of work, which sums to `total`. `sentence` says which steps count,
    `headline` what the device waits for, or what takes most of the step.
    """

    headline: str
    sentence: str
    total: str
    parts: tuple[Part, ...]


def build_critical(rank: RankRun) -> CriticalTable | NotReady | None:
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
    headline = waits or _say_most(
        max(sums, key=lambda kind: sums[kind]), max(sums.values()) / path.steps, total / path.steps
    )
    return CriticalTable(headline, f"Mean of {last}.", format_duration(total / path.steps), parts)


def _say_most(kind: str, spent_ns: float, step_ns: float) -> str:
    label, _, meaning = _WAITS[kind]
    what = meaning if kind in ("compute", "communication", "copy", "operator", "loading") else label.lower()
    share = format_share(spent_ns / step_ns)
    return f"Most of the step is {what}: {format_duration(spent_ns)} of {format_duration(step_ns)} ({share})."


def _describe(kind: str, examples: tuple[str, ...]) -> tuple[str, str, str]:
    label, color, meaning = _WAITS[kind]
    name_work = name_host_work if kind in ON_HOST else shorten_kernel
    short = dict.fromkeys(shorten_middle(name_work(name), _NAME_LENGTH) for name in examples)
    names = ", ".join(short)
    return label, color, f"{meaning}: {names}" if names and kind != "unknown" else meaning


@dataclass(frozen=True)
class DevicePage:
    """The context of the page. `breakdown` is None without device work or a detailed step, `critical` if no launch is
    linked to the work that it launched.

    `linked_only` (`?linked=1`) means that the figures leave out device work without a known launch.
    """

    breakdown: Breakdown | None
    breakdown_notice: Notice | None
    devices: tuple[DevicePanel, ...]
    device_notice: Notice | None
    linked_only: bool
    critical: CriticalTable | None = None
    critical_notice: Notice | None = None


def build(request: PageRequest) -> DevicePage:
    rank = request.rank_run
    linked_only = request.query.get("linked") == "1"
    _, absence = build_part(
        "This rank cannot be read", lambda: explain_absence(rank, "slices", "No detailed window", WINDOW_REMEDY)
    )
    if absence is not None:
        return DevicePage(None, absence, (), None, linked_only)
    breakdown, breakdown_notice = build_part("The breakdown cannot be made", lambda: build_breakdown(rank))
    panels, device_notice = build_part("The device's figures cannot be made", lambda: build_panels(rank, linked_only))
    if not panels and device_notice is None and breakdown_notice is None:
        nothing = _explain_nothing(rank)
        if breakdown and breakdown.is_on_device:
            device_notice = nothing
        else:  # eight categories, five of them for a device and zero, would not inform
            breakdown, breakdown_notice = None, nothing
    if breakdown_notice == device_notice:
        device_notice = None  # both wait for the same
    if breakdown is None and breakdown_notice is None:
        breakdown_notice = Notice(
            "empty",
            "No step in detail",
            "No step was recorded in detail.",
            choose_remedy(rank, "slices", WINDOW_REMEDY),
        )
    critical, critical_notice = None, None
    if panels:
        critical, critical_notice = build_part("The critical path cannot be found", lambda: build_critical(rank))
    return DevicePage(breakdown, breakdown_notice, panels or (), device_notice, linked_only, critical, critical_notice)


def _explain_nothing(rank: RankRun) -> Notice:
    """Return a notice for a rank with operators and without device work: the rank had no device, or none of the work of
    its device was recorded.
    """
    names = dict.fromkeys(device.name for device in rank.manifest.devices if device.kind not in ("cpu", "mps"))
    if not names:
        return Notice("empty", "No device work", fill_in(NO_DEVICE), MOVE_REMEDY)
    reason = NO_KERNEL.format(devices=shorten_middle(", ".join(names), 200))
    lack = explain_import(rank, "kernels")
    return Notice("empty", "No device work was recorded", reason, lack.remedy if lack else MOVE_REMEDY)


PAGE = Page(slug="device", title="Device", order=35, key="v", template="device.html", build=build)
