"""What a step waits for beside workers that keep up: receiving batches, a processor, the DataLoader itself, or late workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from profiler_server.diagnosis.bottleneck import find_bottleneck
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.facts.loading import Readiness
from profiler_server.facts.pipeline import Making, WorkerLoad
from profiler_server.facts.results import Diagnosis
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


PLAN = replace(
    plan_of(4, data_wait=3.12, h2d=0.0, forward=1.0, backward=1.0, optimizer=0.3, tail=0.05),
    read_ms=8.0,
    transform_ms=1.0,
    collate_ms=1.0,
)
"""Four workers that work 45 % of the time, and a step that waits for 56 % of it."""


def sample_queue(missing_in_ten: int) -> list[Row]:
    """Return samples of a queue that is never empty, and lacks the next batch so often."""
    common = {"loader": 0, "queue": "worker_queue", "depth": 5, "capacity": 8, "out_of_order": 0}
    return [{**common, "step": n, "start_ns": n * MS, "next_ready": n % 10 >= missing_in_ten} for n in range(1, 101)]


def finish_late(stages: list[Row]) -> None:
    for row in stages:
        row["start_ns"] += 3 * MS


def diagnose_run(path: Path, missing_in_ten: int, *, late: bool = False) -> tuple[Run, Diagnosis]:
    edit = finish_late if late else None
    run = build_case_run(path, Plant(PLAN, edit_stages=edit, tables={"queues": sample_queue(missing_in_ten)}))
    return run, diagnose(run, 0)


@pytest.mark.parametrize("missing_in_ten", [1, 4])
def test_batches_that_were_finished_in_time_do_not_blame_the_workers(missing_in_ten: int, tmp_path: Path) -> None:
    run, found = diagnose_run(tmp_path / "run", missing_in_ten)
    assert (found.bound_by.kind, found.bound_by.stage) == ("receive", "send")
    assert "had finished the batch before it was asked for in 100.0 % of the requests" in found.sentence
    assert not {"slow_read", "too_few_workers"} & {entry.rule for entry in found.suggestions}
    page = data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval
    assert page.verdict.title == "Receiving batches takes long"
    assert "Limited by receiving batches" not in [reading.title for reading in page.readings]  # it stands above


def test_batches_that_are_finished_after_they_were_asked_for_blame_the_workers(tmp_path: Path) -> None:
    _, found = diagnose_run(tmp_path / "run", 4, late=True)
    assert (found.bound_by.kind, found.bound_by.stage) == ("input", "read")


@pytest.mark.parametrize(("busy_frac", "cause"), [(0.43, "receiving"), (0.9, "making")])
def test_without_the_times_of_the_fetches_only_busy_workers_are_blamed(busy_frac: float, cause: str) -> None:
    found = find_bottleneck([Readiness("q", 100, 0.4, 0.0)], {"read": 8.0}, 0.5, WorkerLoad(busy_frac, 0.9))
    assert found.cause == cause
    assert ("43.0 % of their time" in found.reason) == (cause == "receiving")


@pytest.mark.parametrize(("made_frac", "cause"), [(0.99, "receiving"), (0.4, "making")])
def test_busy_workers_are_not_blamed_for_batches_that_were_finished_in_time(made_frac: float, cause: str) -> None:
    """Workers that share few cores are busy for long, and their batches may be there in time all the same."""
    load = WorkerLoad(0.85, 0.9, making=Making(made_frac, 0.3))
    assert find_bottleneck([Readiness("q", 100, 0.4, 0.0)], {"read": 8.0}, 0.5, load).cause == cause


@pytest.mark.parametrize(
    ("busy_frac", "cpu_frac", "stage"),
    [(0.81, 0.51, "read"), (0.79, 0.9, None), (0.81, 0.49, None), (0.81, None, None)],
)
def test_workers_that_compute_all_the_time_are_what_takes_the_processors(
    busy_frac: float, cpu_frac: float | None, stage: str | None
) -> None:
    queue = Readiness("worker_queue", 100, 0.2, 0.0)
    load = WorkerLoad(busy_frac, cpu_frac, queued_frac=0.35, making=Making(made_frac=0.8, unmade_wait_frac=0.3))
    found = find_bottleneck([queue], {"read": 9.0 * MS, "collate": 1.0 * MS}, 0.35, load)
    assert (found.stage, found.cause) == (stage, "making" if stage else "processor")


IN_MEMORY = plan_of(0, data_wait=0.352, h2d=0.0, forward=0.6, backward=0.0, optimizer=0.05, tail=0.0, gap=0.0)


def plant(read_ms: float, collate_ms: float) -> Plant:
    timed = replace(IN_MEMORY, read_ms=read_ms, transform_ms=0.0, collate_ms=collate_ms)
    return Plant(timed, edit_stages=lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["duration_ns"]]))


@pytest.mark.parametrize(("read_ms", "collate_ms"), [(0.082, 0.060), (0.060, 0.082)])
def test_no_stage_is_blamed_where_the_stages_take_less_than_the_rest_of_the_wait(
    read_ms: float, collate_ms: float, tmp_path: Path
) -> None:
    run = build_case_run(tmp_path / "run", plant(read_ms, collate_ms))
    found = diagnose(run, 0)
    assert (found.bound_by.kind, found.bound_by.stage) == ("input", None)
    assert "Of 352 µs for a batch, reading and collating take 142 µs" in found.sentence
    assert [entry.rule for entry in found.suggestions] == ["in_memory_fetch"]
    page = data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval
    assert "Limited by the DataLoader itself" in [reading.title for reading in page.readings]


def test_a_stage_is_named_where_the_stages_make_up_the_wait(tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", plant(0.22, 0.1)), 0)
    assert (found.bound_by.kind, found.bound_by.stage) == ("input", "read")
    assert [entry.rule for entry in found.suggestions] == ["in_memory_fetch"]
