"""The Device page: the composition of step time, how busy each device was, and how the host launched its work."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.run import RankRun
from profiler_server.format import fill_in, shorten_middle
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
from profiler_server.pages.device.parts import Breakdown, CriticalTable, build_breakdown, build_critical

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
    """Build the page. A section that cannot be read becomes a notice, and the remaining sections are shown."""
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
