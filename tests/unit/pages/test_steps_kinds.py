"""Steps that are no usual ones: batches of an inference, evaluation, outliers, windows, a single one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import RankManifest, Window, encode_manifest
from collector.options import WindowOption
from profiler_server.analysis.steps.interruptions import DEFAULT_STEPS, explain_windows
from profiler_server.page import PageRequest
from profiler_server.pages.steps import build
from tests.support.runs import MS, RunPlan, build_run
from tests.support.steps_page import build_changed, show


def make_evaluation(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row.update(kind="eval", step=0, backward_ns=0, optimizer_ns=0)
        row["duration_ns"] = sum(row[f"{name}_ns"] for name in PHASE_NAMES)


def test_an_inference_run_shows_its_batches_as_forward_only(tmp_path: Path) -> None:
    trace = show(build_changed(tmp_path / "run", RunPlan(steps=30), make_evaluation), step="3")
    assert (trace.noun, trace.nouns, trace.graph.title) == ("batch", "batches", "Batch 3")
    assert {row.label for row in trace.graph.rows if row.present} >= {"Forward"}
    assert not {row.label for row in trace.graph.rows if row.present} & {"Backward", "Parameter update"}
    assert trace.evaluation is None


def test_evaluation_inside_training_is_told_apart(tmp_path: Path) -> None:
    trace = show(build_changed(tmp_path / "run", RunPlan(steps=40), lambda rows: make_evaluation(rows[30:])))
    assert trace.picker.last == 30
    assert trace.evaluation is not None
    assert trace.evaluation.sentence.startswith("10 evaluation batches took")


def test_an_outlier_is_listed_with_its_cause(tmp_path: Path) -> None:
    def slow_down(rows: list[dict[str, Any]]) -> None:
        rows[29]["tail_ns"] += 90 * MS
        rows[29]["duration_ns"] += 90 * MS
        rows[29]["gc_ns"] = 80 * MS

    trace = show(build_changed(tmp_path / "run", RunPlan(steps=60), slow_down))
    ((outlier, cause),) = trace.outliers.rows
    assert (outlier.step, round(outlier.ratio, 1)) == (30, 2.4)
    assert "garbage collection" in cause
    assert trace.outliers.sentence.startswith("1 outlier. A step is an outlier above")


def test_one_step_is_enough_for_a_page(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run", RunPlan(steps=1)))
    assert trace.coverage.sentence == "The average covers the only step."
    assert trace.outliers.rows == ()
    assert len(trace.charts) >= 3


def test_a_run_without_steps_says_so_and_how_to_record(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=1))
    layout.table_file(layout.rank_path(run, 0), "steps").unlink()
    shown = build(PageRequest(open_run(run), "run", 0, (0,), {}))
    assert shown.trace is None
    assert shown.notice is not None
    assert "Profiler(" in shown.notice.remedy


def test_a_damaged_table_is_named_as_failed(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    layout.table_file(layout.rank_path(run, 0), "steps").write_bytes(b"PAR1 not a table")
    shown = build(PageRequest(open_run(run), "run", 0, (0,), {}))
    assert shown.notice is not None
    assert shown.notice.state == "failed"
    assert "steps.parquet" in shown.notice.reason


def test_every_detailed_window_says_why_it_opened_and_what_it_cost(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    manifest = open_run(path).rank(0).manifest
    first = manifest.windows[0]
    later = dataclasses.replace(first, first_step=30, last_step=32, trigger="outlier", stall_ns=2 * MS)
    asked = dataclasses.replace(first, first_step=35, last_step=35, trigger="control")
    order = {"trigger": "outlier", "step": 25, "text": "step 25 took 6.1× the median", "on_demand": True}
    changed = dataclasses.replace(manifest, windows=(first, later, asked), facts={"triggers": [order, None]})
    layout.rank_file(path, 0).write_text(encode_manifest(changed), encoding="utf-8")
    assert [(row.window, row.text, row.on_demand) for row in show(path).windows] == [
        (first, "the default steps of the option window", False),
        (later, "opened by itself: step 25 took 6.1× the median", True),
        (asked, "asked for while the run recorded", False),
    ]


def test_only_a_window_beside_the_default_is_said_to_be_chosen() -> None:
    default = WindowOption()
    assert (default.first, default.first + default.count - 1) == DEFAULT_STEPS
    windows = (Window(10, 12, 0, 1), Window(5, 6, 0, 1))
    manifest = RankManifest(0, "host", 1, "complete", 0, 0, windows=windows)
    assert [entry.text for entry in explain_windows(manifest)] == [
        "the default steps of the option window",
        "chosen by the option window",
    ]


def test_one_step_has_a_length_but_no_percentiles(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run", RunPlan(steps=1, operators=False)))
    assert [figure.label for figure in trace.percentiles] == ["length"]
    assert trace.steadiness == ()
