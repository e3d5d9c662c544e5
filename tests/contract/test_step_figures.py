"""Every face that shows the mean step shows the same one: its count, mean and percentiles, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from collector.format.lens import StepRange
from collector.format.rank import read_step_rows
from collector.format.schema import layout
from collector.format.steps import PERCENTILE_LABELS, PERCENTILES, Distribution, explain_left_out, summarize_steps
from collector.notebook.run import Run, open_run
from collector.traces.importing import import_trace
from profiler_server.analysis.compare.comparison import compare_ranks
from profiler_server.commands import compare
from profiler_server.format import format_duration
from profiler_server.page import PageRequest
from profiler_server.pages import overall, steps
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from profiler_server.store.headline import read_headline
from tests.support.row_edits import Row, lay_end_to_end, write_rows
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.traces import training_steps, write_trace


def build_edited(path: Path, count: int, edit: Callable[[list[Row]], None]) -> Path:
    plan = RunPlan(steps=count)
    build_run(path, plan)
    rows = build_steps(plan)
    edit(rows)
    lay_end_to_end(rows)
    write_rows(layout.rank_path(path, 0), "steps", rows)
    return path


def begin_slowly(rows: list[Row]) -> None:
    for row, factor in zip(rows, (40, 20, 3), strict=False):
        row["forward_ns"] += factor * 10 * MS


def infer(rows: list[Row]) -> None:
    begin_slowly(rows)
    for row in rows:
        row.update(kind="eval", step=0, backward_ns=0, optimizer_ns=0, backwards=0, optimizer_steps=0)


def record_windows_only(rows: list[Row]) -> None:
    for row in rows:
        row["detailed"] = True


def train_and_evaluate(rows: list[Row]) -> None:
    begin_slowly(rows)
    for row in rows[20:30]:
        row.update(kind="eval")


def import_steps(path: Path) -> Path:
    return import_trace(write_trace(path.parent / f"{path.name}.json", training_steps(6, 20_000.0)), path).path


BUILT: dict[str, Callable[[Path], Path]] = {
    "training": lambda path: build_edited(path, 60, begin_slowly),
    "inference": lambda path: build_edited(path, 60, infer),
    "evaluation": lambda path: build_edited(path, 60, train_and_evaluate),
    "imported": import_steps,
    "windows only": lambda path: build_edited(path, 30, record_windows_only),
    "few steps": lambda path: build_edited(path, 15, lambda rows: None),
    "one step": lambda path: build_edited(path, 1, lambda rows: None),
}


@dataclass(frozen=True)
class Truth:
    run: Run
    times: Distribution
    left_out: str
    noun: str


@pytest.fixture(params=BUILT, scope="module")
def truth(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    run = open_run(BUILT[request.param](tmp_path_factory.mktemp("built") / "run"))
    summary = summarize_steps(read_step_rows(run.rank()).steps)
    assert summary.duration_ns is not None
    noun = "batch" if request.param == "inference" else "step"
    return Truth(run, summary.duration_ns, explain_left_out(summary.left_out, noun), noun)


def ask(run: Run, steps_seen: StepRange | None = None) -> PageRequest:
    return PageRequest(run, "run", 0, (0,), {}, steps_seen)


def list_shown(times: Distribution) -> dict[str, str]:
    """Return the figures as pages and the report in text format them."""
    return {label: format_duration(value) for label, value in times.list_percentiles() if value is not None}


def test_the_cases_leave_out_what_they_are_built_for(tmp_path: Path) -> None:
    found = {}
    for name, build in BUILT.items():
        summary = summarize_steps(read_step_rows(open_run(build(tmp_path / name)).rank()).steps)
        found[name] = [(group.reason, len(group.steps)) for group in summary.left_out]
    assert found == {
        "training": [("warm-up", 3), ("detailed windows", 3)],
        "inference": [("warm-up", 3), ("detailed windows", 3)],
        "evaluation": [("warm-up", 3), ("detailed windows", 3)],
        "imported": [],
        "windows only": [],
        "few steps": [("detailed windows", 3)],
        "one step": [],
    }


def test_the_report_agrees_as_an_object_and_as_text(truth: Truth) -> None:
    report = build_report(truth.run)
    times = report["ranks"][0]["steps"]["duration_ns"]
    wanted = {name: getattr(truth.times, name) for name in times}
    assert times == {name: None if value is None else round(value) for name, value in wanted.items()}
    assert set(PERCENTILES) <= set(times)
    assert sum(phase["mean_ns"] for phase in report["ranks"][0]["phases"]) == round(truth.times.mean)
    text = render_text(report, truth.run)
    assert truth.left_out in text
    if truth.times.count == 1:
        assert f"length of the only step {format_duration(truth.times.mean)}" in text
        return
    assert f"count {truth.times.count:,}," in text
    assert f"mean {format_duration(truth.times.mean)}," in text
    for label, value in list_shown(truth.times).items():
        assert f"{'median' if label == 'p50' else label} {value}" in text


def test_the_pages_agree(truth: Truth) -> None:
    _check_pages(truth, None)


@pytest.mark.parametrize("steps_seen", [StepRange(2, 40), StepRange(11, 12), StepRange(30, 30)], ids=str)
def test_the_pages_agree_on_a_filter_of_steps(steps_seen: StepRange, tmp_path: Path) -> None:
    run = open_run(BUILT["training"](tmp_path / "run"))
    summary = summarize_steps(run.rank(0).through(steps_seen).table("steps"))
    assert summary.duration_ns is not None
    truth = Truth(run, summary.duration_ns, explain_left_out(summary.left_out), "step")
    _check_pages(truth, steps_seen)


def _check_pages(truth: Truth, steps_seen: StepRange | None) -> None:
    first = overall.build(ask(truth.run, steps_seen))
    assert first.step.body is not None
    assert truth.left_out in first.step.body.sentence
    assert first.stats.body is not None
    assert format_duration(truth.times.mean) in {stat.value for stat in first.stats.body}
    trace = steps.build(ask(truth.run, steps_seen)).trace
    assert trace is not None
    assert truth.left_out in trace.coverage.sentence
    figures = {figure.label: figure.value for figure in (*trace.percentiles, *trace.more_percentiles)}
    if truth.times.count == 1:  # one step has a length and no distribution
        assert figures == {"length": format_duration(truth.times.mean)}
        return
    assert figures["mean"] == format_duration(truth.times.mean)
    assert {label: figures[label] for label in PERCENTILE_LABELS if label in figures} == list_shown(truth.times)


def test_what_is_printed_agrees(truth: Truth, capsys: pytest.CaptureFixture[str]) -> None:
    truth.run.print_summary()
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:1] == ["count"])
    assert truth.left_out in lines[at - 1]
    cells = dict(zip(lines[at].split(), lines[at + 1].split()[1:], strict=True))
    assert lines[at + 1].split()[0] == truth.noun
    assert int(cells["count"]) == truth.times.count
    wanted = {"mean": truth.times.mean, "median": truth.times.p50, **dict(truth.times.list_percentiles()[1:])}
    shown = {name: "–" if value is None else f"{value / 1e6:,.3f}" for name, value in wanted.items()}
    assert {name: cells[name] for name in wanted} == shown


def test_the_run_list_agrees(truth: Truth) -> None:
    headline = read_headline(truth.run)
    assert headline.step_p50_ns == truth.times.p50
    assert headline.noun == truth.noun


def test_the_comparison_agrees(truth: Truth) -> None:
    compared = compare_ranks(truth.run.rank(0), truth.run.rank(0))
    found = compare.describe(compared)
    assert (found["steps"]["a"], found["steps"]["b"]) == (truth.times.count, truth.times.count)
    assert found["step"]["a_ns"] == pytest.approx(truth.times.mean, rel=1e-12)
    assert not compared.step.is_clear
    count, _, reasons = truth.left_out.partition(" left out: ")
    both = f"{2 * int(count.split()[0])} {truth.noun}" if count else ""
    last = compare.render(compared).splitlines()[-2]
    assert last.startswith(
        f"Means per {truth.noun}, {both}" if both else f"Means per {truth.noun}, every {truth.noun} counted."
    )
    assert last.endswith(f"{reasons}.")
