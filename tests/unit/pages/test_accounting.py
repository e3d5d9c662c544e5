"""The Accounting page as a context."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from collector.traces import import_trace
from profiler_server.page import PageRequest
from profiler_server.pages import timeline
from profiler_server.pages.accounting import AccountingPage, build
from tests.support.runs import RunPlan, build_run
from tests.support.tables import edit_manifest, remove_tables
from tests.support.traces import find_sample, training_steps, write_trace


def _open_accounts(run: Path) -> AccountingPage:
    return build(PageRequest(open_run(run), "run", 0, (0,), {}))


def test_a_trace_is_set_side_by_side_with_reasons(tmp_path: Path) -> None:
    page = _open_accounts(import_trace(find_sample("qwen05b_h100.json.gz"), tmp_path / "run").path)
    assert page.device is not None
    assert page.device.tools == ("Stepscope", "HTA", "TraceLens")
    idle = next(row for row in page.device.rows if row.label == "Idle")
    assert idle.figures[2].differs
    assert "TraceLens leaves out work whose launch is not in the trace." in idle.reason
    assert page.holds
    assert page.sentence.endswith("0 events lost.")


def test_a_difference_below_the_digits_shown_is_named_as_a_difference(tmp_path: Path) -> None:
    page = _open_accounts(import_trace(find_sample("vit_mi300.json.gz"), tmp_path / "run").path)
    assert page.device is not None
    total = next(row for row in page.device.rows if row.label == "Total")
    ours, hta = total.figures[:2]
    assert hta.text == f"{ours.text} (849 ns less)"


def test_figures_that_agree_need_no_reason(tmp_path: Path) -> None:
    page = _open_accounts(import_trace(find_sample("resnet50_v100_workers0.pt.trace.json.gz"), tmp_path / "run").path)
    assert page.steps is not None
    assert {row.reason for row in page.steps.rows} == {""}


def test_a_lost_event_is_no_quiet_matter(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan())
    edit_manifest(run, events_lost=3)
    page = _open_accounts(run)
    assert (page.holds, [fate.name for fate in page.fates if fate.must_be_zero and fate.count]) == (False, ["Dropped"])
    assert "3 events lost" in page.sentence


def test_slices_are_counted_as_the_timeline_counts_them(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "run")
    counted = {fate.name: fate.count for fate in _open_accounts(run.path).fates}
    drawn = next(
        total for total in timeline.build(PageRequest(run, "run", 0, (0,), {})).totals if total.label == "Slices"
    )
    assert drawn.value == f"{counted['Slices']:,}"
    assert drawn.note.endswith(" more drawn for steps, phases and busy time")


def test_a_run_without_a_window_says_so(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(operators=False))
    remove_tables(run, "slices", "tracks")
    page = _open_accounts(run)
    assert page.notice is not None
    assert page.lines == ()
