"""The Overall page: one step in parts, a card for every part of the run, each with its own state."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.traces import import_trace
from profiler_server.page import PageRequest
from profiler_server.pages.timeline import build as build_timeline
from tests.support.overall_page import show, stat
from tests.support.runs import build_run, slow_loader_plan
from tests.support.traces import call, kernel, operator, step, write_trace


def test_the_first_row_says_step_time_rate_wait_device_and_cost(tmp_path: Path) -> None:
    page = show(build_run(tmp_path / "run"))
    assert stat(page, "Mean step") == "64.0 ms"
    assert stat(page, "Throughput") == "500 /s"
    assert stat(page, "Data wait") == "0.6 %"
    assert stat(page, "Device") == "CPU"
    assert stat(page, "Recording cost") == "21.0 µs"


def test_the_parts_of_the_mean_step_add_up_to_it(tmp_path: Path) -> None:
    step = show(build_run(tmp_path / "run")).step.body
    assert step is not None
    assert step.sentence.startswith(
        "Mean over 37 of 40 steps (3 steps left out: detailed windows), recorded in light mode;"
    )
    assert sum(float(part.share.removesuffix(" %")) for part in step.parts) == pytest.approx(100.0, abs=0.1)
    assert step.share == "100.0 %"


def test_the_stage_that_limits_the_step_is_marked(tmp_path: Path) -> None:
    card = show(build_run(tmp_path / "run", slow_loader_plan("transform"))).data_card.body
    assert card is not None
    assert card.limiting == "transform"


def test_no_stage_is_marked_when_the_loader_keeps_up(tmp_path: Path) -> None:
    card = show(build_run(tmp_path / "run")).data_card.body
    assert card is not None
    assert card.limiting is None


def test_operators_are_ranked_and_small_types_are_added_up(tmp_path: Path) -> None:
    card = show(build_run(tmp_path / "run")).operators_card.body
    assert card is not None
    name, _, share_frac = card.top[0]
    assert (name, round(share_frac, 2)) == ("aten::convolution_backward", 0.45)
    assert card.measure == "host self time"


def test_the_timeline_card_has_its_four_totals(tmp_path: Path) -> None:
    card = show(build_run(tmp_path / "run")).timeline_card.body
    assert card is not None
    assert {figure.label: figure.value for figure in card.figures} == {
        "Operator time, host": "120 ms",
        "Thread": "1",
        "Operators": "7",
        "Executions": "99",
    }
    assert card.covered == "steps 10–12"


def test_the_timeline_card_counts_as_the_timeline_page_does(tmp_path: Path) -> None:
    launches = [call(20 + at, 2, at) for at in range(1, 4)]
    kernels = [kernel("gemm", 100 * at, 90, at) for at in range(1, 4)]
    events = [step(1, 0, 500), operator("aten::mm", 10, 30), *launches, *kernels]
    run = import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run").path
    card = show(run).timeline_card.body
    request = PageRequest(open_run(run), "run", 0, (0,), {})
    totals = {total.label: total for total in build_timeline(request).totals}
    assert card is not None
    shown = {figure.label: figure.value for figure in card.figures}
    assert shown["Operator time, host"] == totals["Operator time"].value
    assert (shown["Operators"], shown["Executions"]) == (totals["Operators"].value, "1")
    assert totals["Operators"].note == "1 execution"


def test_the_cost_of_recording_is_a_share_of_the_mean_step_beside_it(tmp_path: Path) -> None:
    page = show(build_run(tmp_path / "run"))
    assert page.stats.body is not None
    (cost,) = (entry for entry in page.stats.body if entry.label == "Recording cost")
    assert cost.note.endswith("0.03 % of the mean step")  # 21.0 µs of 64.0 ms
