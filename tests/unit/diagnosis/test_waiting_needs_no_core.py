"""Workers and steps that only wait need no processor: predictions give them none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.measuring import measure_case
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.row_edits import Row, compute_all, cpu_cores
from tests.support.runs import MS

TWO_CORES = {"usable_cores": 2.0, "torch_threads": 2}


def sleep_all(stages: list[Row]) -> None:
    """All of the work waits: 0.3 % of it is on a processor."""
    for row in stages:
        if row["kind"] == "work":
            row["cpu_ns"] = row["duration_ns"] * 3 // 1000


def sleepy_plant(others: float) -> Plant:
    """Two workers whose collate sleeps for 325 ms, and a step of 60 ms that sleeps, too."""
    phases = {"data_wait": 100.0, "forward": 57.0, "backward": 1.0, "optimizer": 0.5, "tail": 0.5}
    plan = plan_of(2, (0, 0, 0, 1), **phases)
    plan = dataclasses.replace(plan, read_ms=0.1, transform_ms=0.1, collate_ms=325.0)
    used = cpu_cores(process=0.03, system=0.04 + others, count=200)
    return Plant(plan, edit_stages=sleep_all, manifest=TWO_CORES, tables={"resources": used})


@pytest.mark.parametrize("others", [0.0, 1.9])
def test_sleeping_workers_are_as_many_as_it_takes_on_two_cores(others: float, tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", sleepy_plant(others)), 0).suggestions
    workers = next(entry for entry in found if entry.rule == "too_few_workers")
    assert "num_workers=6,  # was 2" in workers.change
    assert "More workers than cores are right here: they wait rather than compute." in workers.advice
    assert workers.predicted_step_ns == pytest.approx(60 * MS, rel=0.06)


def test_a_sleeping_collate_that_goes_leaves_the_step_without_its_wait(tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", sleepy_plant(1.9)), 0).suggestions
    collate = next(entry for entry in found if entry.rule == "slow_collate")
    assert collate.predicted_step_ns == pytest.approx(60 * MS, rel=0.06)


def test_a_step_that_sleeps_leaves_its_core_to_the_workers(tmp_path: Path) -> None:
    """36 ms of decoding on the training thread, 40 ms of a step in which it sleeps: one worker hides all of it."""
    plan = plan_of(0, data_wait=36.0, forward=41.0, backward=1.5, optimizer=0.5, tail=0.5)
    plan = dataclasses.replace(plan, read_ms=34.0, transform_ms=1.0, collate_ms=1.0)
    # 39.5 of 80 ms are on a processor.
    used = cpu_cores(process=0.49, system=0.6, count=100)
    plant = Plant(plan, edit_stages=compute_all, manifest=TWO_CORES, tables={"resources": used})
    run = build_case_run(tmp_path / "run", plant)
    case = measure_case(run, run.rank(0))
    assert case is not None
    assert case.loading.loop.model.steps[0].cores < 0.15
    first = diagnose(run, 0).suggestions[0]
    assert first.rule == "no_workers"
    assert "More workers than cores" not in first.advice
    assert first.predicted_step_ns == pytest.approx(44.1 * MS, rel=0.04)


def test_waiting_is_not_scaled_to_a_quiet_host(tmp_path: Path) -> None:
    """Only the time on a processor was stretched by others: what sleeps, sleeps as long on a quiet host."""
    plan = plan_of(0, data_wait=36.0, forward=41.0, backward=1.5, optimizer=0.5, tail=0.5)
    rows = cpu_cores(process=0.25, system=2.0, count=100)
    waits = [{**row, "metric": "run_queue_frac", "value": 0.3} for row in rows if row["source"] == "process"]
    plant = Plant(plan, edit_stages=compute_all, manifest=TWO_CORES, tables={"resources": [*rows, *waits]})
    run = build_case_run(tmp_path / "run", plant)
    case = measure_case(run, run.rank(0))
    assert case is not None
    assert case.loading.loop.model.steps[0].wall_ns > 40 * MS
