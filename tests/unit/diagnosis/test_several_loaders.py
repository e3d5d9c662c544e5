"""Of several DataLoaders that feed a step the one that starves is named, whatever their order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collector.format.run import Run, open_run
from profiler_server.diagnosis.judging import diagnose
from profiler_server.page import PageRequest
from profiler_server.pages import data
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from tests.support.cases import plan_of
from tests.support.live import edit_rank
from tests.support.row_edits import Row, write_rows
from tests.support.runs import MS, build_fetches, build_queues, build_run, build_stages, build_steps


def zip_loaders(path: Path, starving: int) -> Run:
    """A step of 64 ms that takes a batch from two loaders: one is always ready, the other is waited for 40 ms."""
    plan = plan_of(1, (2, 2), data_wait=41.0)
    run = open_run(build_run(path, plan))
    folder, steps = run.rank(0).folder, build_steps(plan)
    for step in steps:  # the table names the loader of the last batch of a step
        step |= {"loader": 1, "fetches": 2}
    fetches: list[Row] = []
    queues: list[Row] = []
    stages: list[Row] = []
    for number in (0, 1):
        late = number == starving
        own = dataclasses.replace(plan, queue_depths=(0,) if late else (2,), collate_ms=1.0)
        own = dataclasses.replace(own, read_ms=96.0 if late else 1.0, transform_ms=1.0 if late else 9.0)
        wait_ns = (40 if late else 1) * MS
        fetches += [{**row, "loader": number, "duration_ns": wait_ns} for row in build_fetches(steps)]
        queues += [{**row, "loader": number} for row in build_queues(steps, own)]
        # A batch that is waited for is finished when the wait ends.
        by_ns = wait_ns if late else 0
        stages += [{**row, "loader": number, "start_ns": row["start_ns"] + by_ns} for row in build_stages(steps, own)]
    for name, rows in (("steps", steps), ("fetches", fetches), ("queues", queues), ("stages", stages)):
        write_rows(folder, name, rows)
    (loader,) = run.rank(0).manifest.loaders
    loaders = tuple(dataclasses.replace(loader, id=n, dataset="Scans" if n == starving else "Labels") for n in (0, 1))
    edit_rank(path, loaders=loaders)
    return open_run(path)


@pytest.mark.parametrize("starving", [0, 1])
def test_the_loader_that_starves_is_named_in_either_order(starving: int, tmp_path: Path) -> None:
    diagnosis = diagnose(zip_loaders(tmp_path / "run", starving), 0)
    name = f"DataLoader {starving} (Scans)"
    assert (diagnosis.bound_by.kind, diagnosis.bound_by.stage) == ("input", "read")
    assert f"most of it for {name}; read is its slow stage" in diagnosis.sentence
    first = diagnosis.suggestions[0]
    assert first.rule == "too_few_workers"
    assert f"for batches of {name}" in first.measured
    assert "dataset,  # Scans" in first.change


def test_both_orders_give_the_same_figures(tmp_path: Path) -> None:
    one, other = (diagnose(zip_loaders(tmp_path / str(n), n), 0) for n in (0, 1))
    assert [(s.rule, s.predicted_step_ns) for s in one.suggestions] == [
        (s.rule, s.predicted_step_ns) for s in other.suggestions
    ]
    assert one.bound_by == other.bound_by


@pytest.mark.parametrize("starving", [0, 1])
def test_the_report_says_of_which_loader_a_stage_is(starving: int, tmp_path: Path) -> None:
    run = zip_loaders(tmp_path / "run", starving)
    report = build_report(run)
    assert [entry["loader"] for entry in report["ranks"][0]["loaders"]] == [starving, 1 - starving]
    assert {entry["loader"] for entry in report["ranks"][0]["stages"]} == {0, 1}
    text = render_text(report, run)
    assert f"which wait longest for loader {starving}" in text
    assert f"stage read of loader {starving} (Scans): 96.0 ms per batch" in text
    assert f"stage transform of loader {1 - starving} (Labels)" in text


@pytest.mark.parametrize("starving", [0, 1])
def test_the_data_page_opens_the_loader_that_starves_and_clears_the_other(starving: int, tmp_path: Path) -> None:
    run = zip_loaders(tmp_path / "run", starving)
    page = data.PAGE.build(PageRequest(run, "run", 0, (0,), {}))
    assert [link.current for link in page.loaders] == [starving == 0, starving == 1]
    assert page.interval.verdict.title == "Highly input-bound"
    other = data.PAGE.build(PageRequest(run, "run", 0, (0,), {"loader": str(1 - starving)}))
    assert other.interval.verdict.title == "Not input-bound"
    assert other.interval.verdict.text.startswith("The step waits for this DataLoader for 1.0 % of its time")
