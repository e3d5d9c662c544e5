"""Workers that have time to spare, and whose batches are finished in time, are not what the step waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collector.format.run import Run
from profiler_server.diagnosis.bottleneck import find_bottleneck
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.loading import Readiness
from profiler_server.facts.pipeline import Making, WorkerLoad
from profiler_server.facts.results import Diagnosis
from profiler_server.page import PageRequest
from profiler_server.pages import data
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.row_edits import Row
from tests.support.runs import MS

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
