"""The Step trace page: what it says of a step, of the average, and of runs that are out of the ordinary."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema import layout
from profiler_server.analysis.steps.step_graph import StepGraph, Stretch
from profiler_server.pages.steps.graph import view_graph
from tests.support.cases import Plant, build_case_run
from tests.support.row_edits import lay_end_to_end, rest_between_epochs, write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.steps_page import show


def test_the_average_is_shown_by_default_and_says_what_it_covers(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run"))
    assert trace.graph.title == "Average step"
    assert trace.picker.step is None
    assert (
        trace.coverage.sentence == "The average covers 37 of 40 steps: 1–9, 13–40. 3 steps left out: detailed windows."
    )
    assert trace.coverage.left_out == ("10–12 (3): inside a detailed window, whose cost they carry",)


@pytest.mark.parametrize("step", ["", "7"])
def test_shown_shares_add_up_to_the_whole(tmp_path: Path, step: str) -> None:
    trace = show(build_run(tmp_path / "run"), step=step)
    shares = [float(row.share.removesuffix(" %")) for row in trace.graph.rows if row.present]
    assert sum(shares) == pytest.approx(100.0, abs=0.1)
    assert trace.graph.share == "100.0 %"


def test_bars_of_a_recorded_step_stand_where_they_were_measured(tmp_path: Path) -> None:
    trace = show(build_run(tmp_path / "run"), step="5")
    assert "when each phase ran" in trace.graph.note
    ends = [float(bar.x.rstrip("%")) + float(bar.width.rstrip("%")) for bar in trace.graph.strip.bars]
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(100.0, abs=0.01)


def test_what_the_parts_of_a_step_took_on_the_device_is_a_sentence(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    assert show(path).on_device == ""
    times = ((11, "backward", 30), (11, "forward", 10), (21, "forward", 20), (21, "backward", 50))
    rows = [{"step": step, "phase": phase, "duration_ns": length * MS} for step, phase, length in times]
    write_rows(layout.rank_path(path, 0), "device_phases", rows)
    text = "On the device, by events on its stream, mean of 2 steps: forward 15.0 ms, backward 40.0 ms."
    assert show(path).on_device == text


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
