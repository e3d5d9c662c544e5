"""What a step waits for beside workers that keep up: receiving batches, a processor, the DataLoader itself, or late workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.page import PageRequest
from profiler_server.pages import data, overall
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.row_edits import Row, begin_epochs, compute_all, cpu_cores
from tests.support.runs import MS


def read_page(run: Run) -> Any:
    return data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval


def queue_for_a_core(share: float) -> list[Row]:
    rows = cpu_cores(process=0.5, system=2.0, count=100)
    waits = [{**row, "metric": "run_queue_frac", "value": share} for row in rows if row["source"] == "process"]
    return [*rows, *waits]


def compute_and_rest(stages: list[Row]) -> None:
    compute_all(stages)
    for row in stages[: len(stages) // 2]:
        row["start_ns"] -= 8_000 * MS


@pytest.mark.parametrize("depths", [(4, 4, 4, 3), (0, 4, 0, 3)])
def test_waits_at_the_starts_of_epochs_are_called_so_on_every_page(depths: tuple[int, ...], tmp_path: Path) -> None:
    plan = plan_of(2, depths, data_wait=0.4)
    tables = {"resources": queue_for_a_core(0.5)}
    plant = Plant(plan, edit=begin_epochs(10, wait_ms=400.0, start_ms=300.0), tables=tables)
    run = build_case_run(tmp_path / "run", plant)
    diagnosis, view = diagnose(run, 0), read_page(run)
    card = overall.PAGE.build(PageRequest(run, "run", 0, (0,), {})).data_card.body
    assert diagnosis.bound_by.kind == "input"
    assert view.verdict.title == "The starts of epochs wait for data"
    assert "Limited by the starts of epochs" not in [reading.title for reading in view.readings]  # it stands above
    for text in (diagnosis.sentence, view.verdict.text, card.sentence):
        assert "Most of the wait is in the first steps of epochs" in text
        assert "Batches are ready" not in text
        assert "free processor" not in text


@pytest.mark.parametrize("wait_ms", [4.0, 8.0, 40.0])
def test_no_page_calls_it_input_bound_and_none_says_that_nothing_waits(wait_ms: float, tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(plan_of(2, (4, 4, 4, 3), data_wait=wait_ms)))
    view = read_page(run)
    assert "nput-bound" not in view.verdict.title
    assert [reading.title for reading in view.readings if reading.tone == "good"] == []
    assert view.verdict.tone in ("watch", "bad")


@pytest.mark.parametrize("read_ms", [8.0, 80.0])
def test_the_verdict_and_the_pages_name_the_same_limit_of_busy_workers(read_ms: float, tmp_path: Path) -> None:
    """The workers rest between the epochs, so that over the whole run they are less busy than in the steps."""
    plan = replace(plan_of(2, (4, 4, 4, 3), data_wait=16.0), read_ms=read_ms, transform_ms=60.0)
    tables = {"resources": queue_for_a_core(0.6)}
    run = build_case_run(tmp_path / "run", Plant(plan, edit_stages=compute_and_rest, tables=tables))
    case = measure_case(run, run.rank(0))
    page = data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval
    card = overall.PAGE.build(PageRequest(run, "run", 0, (0,), {})).data_card.body
    assert case is not None
    reason = case.loading.bottleneck.reason
    assert card.sentence == reason
    assert [reason in reading.text for reading in (page.verdict, *page.readings)].count(True) == 1


IN_MEMORY = plan_of(0, data_wait=0.352, h2d=0.0, forward=0.6, backward=0.0, optimizer=0.05, tail=0.0, gap=0.0)


def plant(read_ms: float, collate_ms: float) -> Plant:
    timed = replace(IN_MEMORY, read_ms=read_ms, transform_ms=0.0, collate_ms=collate_ms)
    return Plant(timed, edit_stages=lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["duration_ns"]]))
