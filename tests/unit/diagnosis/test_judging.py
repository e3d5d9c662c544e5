"""The verdict, the order of suggestions, and what a prediction is made of."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from collector.estimating.model import Job, LoopModel
from collector.estimating.simulation import simulate
from collector.format.run import open_run
from profiler_server.analysis.data.prediction import predict_step
from profiler_server.diagnosis.judging import diagnose
from tests.support.cases import HEALTHY, PLANTED, build_case_run
from tests.support.diagnosing import measure
from tests.support.runs import MS, build_run, slow_loader_plan


def test_the_model_reproduces_the_run_it_was_measured_from(tmp_path: Path) -> None:
    for name in ("too_few_workers", "uneven_samples", "no_workers"):
        run = build_case_run(tmp_path / name, PLANTED[name])
        case = measure(run)
        assert case.loading.loop.check == pytest.approx(1.0, abs=0.1), name


def test_predictions_leave_amortised_events_in_place(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["worker_restart"])
    case = measure(run)
    assert predict_step(case.loading.loop, case.loading.loop.model) == pytest.approx(case.steps.mean_ns, rel=1e-6)
    assert case.loading.loop.model.extra_ns > 30 * MS


def test_a_diagnosis_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", HEALTHY["compute"])
    first = diagnose(run, 0)
    assert diagnose(run, 0) is first
    steps = next(run.rank(0).folder.glob("steps.parquet"))
    os.utime(steps, ns=(1, 1))
    assert diagnose(run, 0) is not first


def test_simulated_gain_of_a_stage_is_that_of_its_share() -> None:
    base = LoopModel(batches=(Job(300.0, 0.0),), steps=(Job(60.0, 0.0),), workers=2, cores=100.0)
    half = dataclasses.replace(base, batches=(Job(150.0, 0.0),))
    assert simulate(base).step_ns == pytest.approx(2 * simulate(half).step_ns, rel=0.02)


@pytest.mark.parametrize(("steps", "advised"), [(15, False), (40, True)])
def test_a_run_is_advised_while_it_records_from_twenty_steady_steps_on(
    steps: int, advised: bool, tmp_path: Path
) -> None:
    plan = dataclasses.replace(slow_loader_plan("read"), steps=steps, state="recording", operators=False)
    run = open_run(build_run(tmp_path / "run", plan))
    assert run.state == "recording"
    found = diagnose(run, 0)
    assert bool([entry for entry in found.suggestions if entry.predicted_step_ns is not None]) == advised
    assert advised or "Only" in found.sentence
