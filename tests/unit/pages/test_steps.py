"""The Step trace page as a context: the graph, which step it shows, and the tables beside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.format.parts import build_table, write_table
from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import RankManifest, Window
from collector.options import WindowOption
from profiler_server.analysis.steps.interruptions import DEFAULT_STEPS, explain_windows
from profiler_server.analysis.steps.step_graph import StepGraph, Stretch
from profiler_server.page import PageRequest
from profiler_server.pages.steps import build
from profiler_server.pages.steps.charts import CHART_NAMES, build_figure, narrow, read_step_data
from profiler_server.pages.steps.graph import view_graph
from tests.support.cases import Plant, build_case_run
from tests.support.live import edit_rank
from tests.support.row_edits import lay_end_to_end, rest_between_epochs, write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.steps_page import build_changed, show


def test_the_average_is_shown_by_default_and_says_what_it_covers(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run"))
    assert trace.graph.title == "Average step"
    assert trace.picker.step is None
    assert (
        trace.coverage.sentence == "The average covers 37 of 40 steps: 1–9, 13–40. 3 steps left out: detailed windows."
    )
    assert trace.coverage.left_out == ("steps 10–12 (3). The detailed window, or the reading of it, made them longer.",)


@pytest.mark.parametrize("step", ["", "7"])
def test_shown_shares_add_up_to_the_whole(tmp_path: Path, step: str) -> None:
    trace = show(build_run(tmp_path / "run"), step=step)
    shares = [float(row.share.removesuffix(" %")) for row in trace.graph.rows if row.present]
    assert sum(shares) == pytest.approx(100.0, abs=0.1)
    assert trace.graph.share == "100.0 %"


def test_what_the_parts_of_a_step_took_on_the_device_is_a_sentence(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    assert show(path).on_device == ""
    times = ((11, "backward", 30), (11, "forward", 10), (21, "forward", 20), (21, "backward", 50))
    rows = [{"step": step, "phase": phase, "duration_ns": length * MS} for step, phase, length in times]
    write_rows(layout.rank_path(path, 0), "device_phases", rows)
    text = "On the device, by events on its stream, mean of 2 steps: forward 15.0 ms, backward 40.0 ms."
    assert show(path).on_device == text


def test_collectives_are_parted_into_exposed_and_overlapped_time(tmp_path: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["communication_ns"] = 2 * MS
        for number, total in ((20, 8), (21, 4)):
            rows[number - 1]["communication_total_ns"] = total * MS

    assert show(build_run(tmp_path / "alone")).collectives == ""
    path = build_changed(tmp_path / "run", RunPlan(), change)
    average = "Collectives take 6.00 ms, mean of 2 steps: 2.00 ms exposed, 4.00 ms (66.7 %) overlapped with other work."
    assert show(path).collectives == average
    one = "Collectives take 4.00 ms: 2.00 ms exposed, 2.00 ms (50.0 %) overlapped with other work."
    assert show(path, step="21").collectives == one
    assert show(path, step="22").collectives == ""


@pytest.mark.parametrize(
    ("order", "explained"),
    [(("optimizer", "forward", "backward"), True), (("forward", "backward", "optimizer"), False)],
)
def test_an_update_before_the_backward_is_explained_as_zero_grad(order: tuple[str, ...], explained: bool) -> None:
    stretches = tuple(Stretch(name, 10.0 * place, 10.0) for place, name in enumerate(order))
    shown = view_graph(StepGraph(7, 1_000, 30.0, stretches, (), measured=True), (), "Step 7")
    assert ("zero_grad" in shown.note) is explained
    spans = {row.label: row.span_ns for row in shown.rows if row.span_ns}
    assert spans["Forward"] == (1_000 + 10 * order.index("forward"), 1_010 + 10 * order.index("forward"))


@pytest.mark.parametrize("steps", [1, 12])
def test_few_steps_have_no_percentiles_above_the_median(steps: int, tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run", RunPlan(steps=steps, operators=False)))
    assert {"p90", "p95", "p97", "p99", "p99.9"} & {figure.label for figure in trace.percentiles} == set()
    assert {row.p95 for row in trace.graph.rows} == {"–"}
    assert ({row.p50 for row in trace.graph.rows if row.present} == {"–"}) == (steps == 1)
    assert trace.graph.title == ("The only step" if steps == 1 else "Average step")
    assert ("an average has" in trace.graph.note) == (steps > 1)
    assert "percentile" not in trace.charts[0].caption
    assert trace.spread == (
        "One step has no spread."
        if steps == 1
        else "Over the steps that the average covers. Percentiles above the median need 20 steps; the average covers 9."
    )


def test_what_held_the_training_up_has_its_share_of_the_recorded_time(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(RunPlan(steps=40), edit=rest_between_epochs(10, 100.0)))
    trace = show(run.path)
    (row,) = trace.interruptions
    assert (row.held.label, row.count, row.total_ns) == ("time between epochs", 3, 300 * MS)
    assert row.total_ns / trace.recorded_ns == pytest.approx(0.105, abs=5e-4)


def test_one_very_long_step_does_not_flatten_the_others(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    rows = build_steps(RunPlan())
    rows[0]["data_wait_ns"] += 10_000 * MS
    lay_end_to_end(rows)
    write_rows(layout.rank_path(run, 0), "steps", rows)
    charts = {chart.source: chart for chart in show(run).charts}
    usual_ms = max(row["duration_ns"] for row in rows[1:]) / MS
    for name in ("duration", "phases"):
        assert charts[name].figure["layout"]["yaxis"]["range"] == [0, pytest.approx(1.06 * usual_ms)]
    assert all(chart.caption.endswith("Step 1 leaves the picture: it takes 10.1 s.") for chart in charts.values())


def test_steps_of_one_kind_are_shown_whole(tmp_path: Path) -> None:
    charts = show(build_run(tmp_path / "run")).charts
    assert all("range" not in chart.figure["layout"]["yaxis"] for chart in charts)


def test_any_step_can_be_picked_and_stands_where_it_was_measured(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run"), step="5")
    assert trace.graph.title == "Step 5"
    assert (trace.picker.previous, trace.picker.next) == (4, 6)
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    assert trace.end_ns > trace.start_ns
    assert "when each phase ran" in trace.graph.note
    ends = [float(bar.x.rstrip("%")) + float(bar.width.rstrip("%")) for bar in trace.graph.strip.bars]
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(100.0, abs=0.01)


def test_the_first_and_the_last_step_have_one_neighbour(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    assert show(run, step="1").picker.previous is None
    assert show(run, step="40").picker.next is None


@pytest.mark.parametrize("wanted", ["0", "41", "²", "9" * 400])
def test_a_bad_number_gives_an_error_and_the_average(tmp_path: Path, wanted: str) -> None:
    trace = show(build_run(tmp_path / "run"), step=wanted)
    assert "steps 1 to 40" in trace.picker.error
    assert trace.graph.title == "Average step"
    assert len(trace.picker.error) < 200


def test_zooming_in_shows_single_steps_of_the_range(tmp_path: Path) -> None:
    data = read_step_data(open_run(build_run(tmp_path / "run", RunPlan(steps=600))).rank(0))
    whole, near = build_figure("phases", data), build_figure("phases", narrow(data, 100, 120))
    assert whole["data"][0]["width"] > 1
    assert near["data"][0]["width"] == 1
    assert near["data"][0]["x"] == list(range(100, 121))
    assert build_figure("duration", narrow(data, 9_000, 9_100))["data"][-1]["x"] == []


def test_a_run_of_100_000_steps_has_a_small_page(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=2))
    count = 100_000
    noise = np.random.default_rng(1).integers(0, 5 * MS, count)
    parts = {f"{name}_ns": np.full(count, MS) + (noise if name == "data_wait" else 0) for name in PHASE_NAMES}
    duration = sum(parts.values())
    zeros = np.zeros(count, dtype=np.int64)
    counts = dict.fromkeys(("fetches", "forwards", "backwards", "optimizer_steps"), zeros + 1)
    columns = {
        "index": np.arange(count),
        "step": np.arange(1, count + 1),
        "kind": ["train"] * count,
        "start_ns": np.cumsum(duration) - duration,
        "duration_ns": duration,
        **parts,
        **counts,
        **dict.fromkeys(("skipped_updates", "loader_start_ns", "gc_ns"), zeros),
        **dict.fromkeys(("detailed", "markers"), zeros.astype(bool)),
    }
    write_table(build_table("steps", columns), layout.table_file(layout.rank_path(run, 0), "steps"))
    trace = show(run, step="77777")
    assert sum(len(json.dumps(chart.figure)) for chart in trace.charts) < 200_000
    assert max(len(chart.rows) for chart in trace.charts) <= 40
    assert {chart.source for chart in trace.charts} <= set(CHART_NAMES)


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


def test_a_run_without_steps_says_so_and_how_to_record(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=1))
    layout.table_file(layout.rank_path(run, 0), "steps").unlink()
    shown = build(PageRequest(open_run(run), "run", 0, (0,), {}))
    assert shown.trace is None
    assert shown.notice is not None
    assert "Profiler(" in shown.notice.remedy


def test_every_detailed_window_says_why_it_opened_and_what_it_cost(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    first = open_run(path).rank(0).manifest.windows[0]
    later = dataclasses.replace(first, first_step=30, last_step=32, trigger="outlier", stall_ns=2 * MS)
    asked = dataclasses.replace(first, first_step=35, last_step=35, trigger="control")
    order = {"trigger": "outlier", "step": 25, "text": "step 25 took 6.1× the median", "on_demand": True}
    edit_rank(path, windows=(first, later, asked), facts={"triggers": [order, None]})
    assert [(row.window, row.text, row.on_demand) for row in show(path).windows] == [
        (first, "the default of the option window", False),
        (later, "opened by itself: step 25 took 6.1× the median", True),
        (asked, "asked for while the run recorded", False),
    ]


def test_only_a_window_beside_the_default_is_said_to_be_chosen() -> None:
    default = WindowOption()
    assert (default.first, default.first + default.count - 1) == DEFAULT_STEPS
    windows = (Window(10, 12, 0, 1), Window(5, 6, 0, 1))
    manifest = RankManifest(0, "host", 1, "complete", 0, 0, windows=windows)
    assert [entry.text for entry in explain_windows(manifest)] == [
        "the default of the option window",
        "chosen by the option window",
    ]
