"""The memory of a device: its peak, any other moment, and what was allocated then."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from tests.support.machines import build_machine, build_memory, build_resources
from tests.support.memory_page import change_manifest, show
from tests.support.row_edits import write_rows
from tests.support.runs import MS, RunPlan, build_steps


def test_the_peak_is_shown_first_and_any_moment_can_be_picked(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    shown = show(run).tensors
    assert shown is not None
    assert shown.moment.is_peak
    assert shown.moment.sentence.startswith("648 MiB were allocated of 1.00 GiB reserved, 6 blocks of that")
    early = show(run, at_ns=str(shown.origin_ns + 100)).tensors
    assert early is not None
    assert not early.moment.is_peak
    assert [block.operator for block in early.moment.live.blocks] == ["aten::mm"]


@pytest.mark.parametrize(
    "query", [{"at_ns": "x"}, {"at_ns": "-1"}, {"device": "7"}, {"device": "<b>", "at_ns": "9" * 40}]
)
def test_a_bad_moment_or_device_is_told_and_the_peak_shown(tmp_path: Path, query: dict[str, str]) -> None:
    shown = show(build_machine(tmp_path / "run"), **query).tensors
    assert shown is not None
    assert "is shown" in shown.error or "the peak" in shown.error
    assert shown.moment.live.blocks


def test_devices_are_tabs_where_there_are_several(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    steps = build_steps(RunPlan(steps=200))
    rows = sorted([*build_memory(steps, 0), *build_memory(steps, -1)], key=lambda row: row["start_ns"])
    write_rows(layout.rank_path(run, 0), "memory", rows)
    shown = show(run, device="-1").tensors
    assert shown is not None
    assert [(link.label, link.current) for link in shown.devices] == [("GPU 0", False), ("Host memory", True)]
    assert shown.chart.title.startswith("Host memory")


def test_hostile_names_stay_short(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    steps = build_steps(RunPlan(steps=200))
    name = "<script>alert(1)</script>" + "x" * 10_000
    rows = [{**row, "operator": name} for row in build_memory(steps)]
    write_rows(layout.rank_path(run, 0), "memory", rows)
    write_rows(layout.rank_path(run, 0), "resources", [{**row, "source": name} for row in build_resources(steps)[:40]])
    shown = show(run)
    assert shown.tensors is not None
    assert max(len(cell) for row in shown.tensors.chart.rows for cell in row) <= 40


def test_a_moment_is_placed_in_its_window(tmp_path: Path) -> None:
    run = build_machine(tmp_path / "run")
    (window,) = open_run(run).rank(0).manifest.windows
    earlier = dataclasses.replace(window, first_step=2, last_step=2, start_ns=window.start_ns - 40 * MS)
    change_manifest(run, windows=(earlier, window))
    shown = show(run, at_ns=str(window.start_ns + 5 * MS))
    assert shown.tensors is not None
    assert "into the window of steps 10–12" in shown.tensors.moment.title
    change_manifest(run, windows=())
    shown = show(run)
    assert shown.tensors is not None
    assert "after the first event" in shown.tensors.moment.title
