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
from tests.support.cases import HEALTHY, PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import diagnose_plant, measure
from tests.support.row_edits import evaluate
from tests.support.runs import MS, build_run, slow_loader_plan


@pytest.mark.parametrize("stage", ["read", "transform", "collate"])
def test_slow_stage_is_named_in_the_verdict(stage: str, tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", PLANTED[f"slow_{stage}"])
    assert (diagnosis.bound_by.kind, diagnosis.bound_by.stage) == ("input", stage)
    assert diagnosis.sentence.startswith("Highly input-bound: the step waits 96.0 ms of 160 ms (60.2 %) for data")
    assert f"{stage} is the slow stage" in diagnosis.sentence
    assert diagnosis.suggestions[0].rule == f"slow_{stage}"


def test_slow_model_names_no_stage(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", HEALTHY["compute"])
    assert (diagnosis.bound_by.kind, diagnosis.bound_by.stage) == ("compute", None)
    assert diagnosis.bound_by.confidence_frac == 1.0
    assert diagnosis.sentence.startswith("Compute-bound: forward, backward and update take 62.0 ms of 64.0 ms (96.9 %)")


def test_the_slowest_transform_is_named(tmp_path: Path) -> None:
    first = diagnose_plant(tmp_path / "run", PLANTED["slow_transform"]).suggestions[0]
    assert first.title == "Transforms are slow: Rotate"
    assert "Rotate alone is 90.0 % of it" in first.measured


ROOMY = dataclasses.replace(PLANTED["too_few_workers"], manifest={"usable_cores": 16.0})
"""Too few workers, and cores for more of them beside the threads of the step."""


def test_more_workers_come_before_code_that_would_do_the_same(tmp_path: Path) -> None:
    first, second = diagnose_plant(tmp_path / "run", ROOMY).suggestions
    assert (first.rule, second.rule) == ("too_few_workers", "slow_read")
    assert "An alternative to “num_workers 2 → 5”" in second.advice
    assert second.severity == "low"


def test_the_change_is_the_run_s_own_loader(tmp_path: Path) -> None:
    first = diagnose_plant(tmp_path / "run", PLANTED["too_few_workers"]).suggestions[0]
    assert "dataset,  # DigitFiles" in first.change
    assert "batch_size=32," in first.change
    assert "num_workers=5,  # was 2" in first.change


def test_prediction_of_more_workers_is_the_step_without_the_wait(tmp_path: Path) -> None:
    first = diagnose_plant(tmp_path / "run", ROOMY).suggestions[0]
    assert first.predicted_step_ns == pytest.approx(64 * MS, rel=0.12)
    assert (first.predicted_low_ns or 0) < 66 * MS < (first.predicted_high_ns or 0)


def test_optimizer_advice_waits_until_the_loop_is_fed(tmp_path: Path) -> None:
    """While the step starves, an update that is a third of the rest is worth nothing before the workers are there."""
    plan = dataclasses.replace(
        PLANTED["too_few_workers"].plan, phases_ms={**plan_of(optimizer=40.0).phases_ms, "data_wait": 62.0}
    )
    facts = {"optimizers": [{"name": "AdamW", "foreach": False, "fused": None}]}
    rules = diagnose_plant(tmp_path / "run", Plant(plan, manifest={"facts": facts})).suggestions
    assert [s.rule for s in rules][:2] == ["too_few_workers", "optimizer_loop"]
    assert "Do it after “num_workers 2 →" in rules[1].advice


def test_a_run_that_only_infers_is_judged_by_its_batches(tmp_path: Path) -> None:
    def infer(steps: list[dict[str, object]]) -> None:
        evaluate(steps)
        del steps[:100]

    diagnosis = diagnose_plant(tmp_path / "run", Plant(edit=infer))
    assert diagnosis.bound_by.kind == "compute"


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
