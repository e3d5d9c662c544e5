"""A step that waits beside a full queue is not input-bound: the verdict says what it waits for."""

from __future__ import annotations

from collections.abc import Callable
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

FULL = plan_of(2, (4, 4, 4, 3), data_wait=40.0)


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


def size(batch_bytes: int) -> Callable[[list[Row]], None]:
    def edit(stages: list[Row]) -> None:
        for row in stages:
            row["bytes"] = batch_bytes

    return edit


@pytest.mark.parametrize(("batch_bytes", "cores"), [(8 * 4096, 4.0), (4 << 20, 2.0)])
def test_another_way_of_sharing_is_not_advised_for_small_batches_or_on_a_busy_host(
    batch_bytes: int, cores: float, tmp_path: Path
) -> None:
    busy = {"resources": queue_for_a_core(0.1)}
    plant = Plant(FULL, edit_stages=size(batch_bytes), manifest={"usable_cores": cores}, tables=busy)
    diagnosis = diagnose(build_case_run(tmp_path / "run", plant), 0)
    assert diagnosis.bound_by.kind == "receive"
    assert not [entry for entry in diagnosis.suggestions if "set_sharing_strategy" in entry.change]


def test_receiving_batches_is_named_and_gets_its_rule(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(FULL, edit_stages=size(4 << 20)))
    diagnosis = diagnose(run, 0)
    assert (diagnosis.bound_by.kind, diagnosis.bound_by.stage) == ("receive", "send")
    assert diagnosis.sentence.startswith("Receiving batches holds up the step: it waits 40.0 ms of 104 ms (38.6 %)")
    assert "input-bound" not in diagnosis.sentence
    assert "Receiving finished batches" not in diagnosis.sentence  # the verdict has said it
    assert [entry.rule for entry in diagnosis.suggestions] == ["ipc_bound"]


def test_a_training_thread_without_a_processor_is_named(tmp_path: Path) -> None:
    tables = {"resources": queue_for_a_core(0.67)}
    run = build_case_run(tmp_path / "run", Plant(FULL, manifest={"usable_cores": 2.0}, tables=tables))
    diagnosis = diagnose(run, 0)
    assert diagnosis.bound_by.kind == "processor"
    assert "waits for a free processor 67.0 % of the time" in diagnosis.sentence
    assert read_page(run).verdict.title == "No processor is free to receive batches"


def test_a_step_that_computes_is_not_called_short_of_processors_for_a_small_wait(tmp_path: Path) -> None:
    plan = plan_of(2, (4, 4, 4, 3), data_wait=12.0)
    tables = {"resources": queue_for_a_core(0.3)}
    run = build_case_run(tmp_path / "run", Plant(plan, manifest={"usable_cores": 2.0}, tables=tables))
    diagnosis = diagnose(run, 0)
    assert diagnosis.bound_by.kind == "compute"
    assert "waits for a free processor 30.0 % of the time" in diagnosis.sentence
    assert "Short of processors" not in diagnosis.sentence


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
