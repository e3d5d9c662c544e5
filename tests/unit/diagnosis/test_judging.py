"""The verdict, the order of suggestions, and what a prediction is made of."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError, TableBrokenError
from collector.format.schema.manifest import encode_manifest
from collector.traces import import_trace
from profiler_server.analysis.data.loader_simulation import Job, LoopModel, simulate
from profiler_server.analysis.results import Diagnosis
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.measuring import measure_case
from tests.support.cases import (
    A100,
    HEALTHY,
    PLANTED,
    Plant,
    build_case_run,
    compute_all,
    cpu_cores,
    evaluate,
    plan_of,
    stall,
)
from tests.support.runs import MS, RunPlan, build_run
from tests.support.traces import training_steps, write_trace


def diagnose_plant(path: Path, plant: Plant) -> Diagnosis:
    return diagnose(build_case_run(path, plant), 0)


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


def test_more_workers_come_before_code_that_would_do_the_same(tmp_path: Path) -> None:
    first, second = diagnose_plant(tmp_path / "run", PLANTED["too_few_workers"]).suggestions
    assert (first.rule, second.rule) == ("too_few_workers", "slow_read")
    assert "An alternative to “num_workers 2 → 5”" in second.advice
    assert second.severity == "low"


def test_the_change_is_the_run_s_own_loader(tmp_path: Path) -> None:
    first = diagnose_plant(tmp_path / "run", PLANTED["too_few_workers"]).suggestions[0]
    assert "dataset,  # DigitFiles" in first.change
    assert "batch_size=32," in first.change
    assert "num_workers=5,  # was 2" in first.change


def test_prediction_of_more_workers_is_the_step_without_the_wait(tmp_path: Path) -> None:
    first = diagnose_plant(tmp_path / "run", PLANTED["too_few_workers"]).suggestions[0]
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


def test_missing_signals_make_rules_abstain_and_say_how_to_get_them(tmp_path: Path) -> None:
    without_stages = Plant(plan_of(depths=(0, 0, 0, 1), data_wait=96.0), edit_stages=lambda rows: rows.clear())
    found = {entry.rule: entry for entry in diagnose_plant(tmp_path / "a", without_stages).abstained}
    assert "data_pipeline=True" in found["too_few_workers"].how
    device = diagnose_plant(tmp_path / "b", Plant(manifest={"devices": (A100,)})).abstained
    assert [entry.rule for entry in device] == ["launch_bound"]
    update = diagnose_plant(tmp_path / "c", Plant(plan_of(optimizer=40.0))).abstained
    assert [entry.rule for entry in update] == ["optimizer_loop"]


def test_few_steps_get_a_verdict_without_advice(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", Plant(RunPlan(steps=8)))
    assert diagnosis.bound_by.kind == "compute"
    assert diagnosis.bound_by.confidence_frac == pytest.approx((8 / 20) ** 0.5)
    assert "Only 7 steady steps were recorded; advice needs 20." in diagnosis.sentence
    assert [(entry.rule, entry.missing) for entry in diagnosis.abstained] == [
        ("all", "13 more steady steps: 20 are needed, the run has 7")
    ]


def short_trace(kind: str, steps: int = 6, **phases_ms: float) -> Plant:
    """Some steps that another profiler recorded, and which iterator of a loader they show."""
    facts = {"data_loader": kind}
    plan = dataclasses.replace(plan_of(2, (3, 4, 4, 3), **phases_ms), steps=steps)
    return Plant(plan, manifest={"state": "imported", "loaders": (), "facts": facts})


def test_a_short_trace_is_told_what_it_shows_without_a_step_time(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", short_trace("single_process", data_wait=96.0))
    (found,) = diagnosis.suggestions
    assert (found.rule, found.severity, found.predicted_step_ns) == ("no_workers", "medium", None)
    assert "with no wait left, a step takes 63.6 ms" in found.advice
    assert "A step time is predicted from 20 steady steps on; the trace has 5." in found.advice
    assert "The training process loads its own data. Only 5 steady steps were recorded" in diagnosis.sentence
    assert [entry.rule for entry in diagnosis.abstained] == ["all"]


def test_a_longer_trace_gets_a_step_time_for_workers(tmp_path: Path) -> None:
    found = diagnose_plant(tmp_path / "run", short_trace("single_process", steps=60, data_wait=96.0)).suggestions[0]
    assert (found.rule, found.severity) == ("no_workers", "medium")
    assert 63e6 < (found.predicted_step_ns or 0) < (found.predicted_high_ns or 0) < 130e6


def test_a_short_trace_of_workers_is_not_told_to_use_workers(tmp_path: Path) -> None:
    assert diagnose_plant(tmp_path / "run", short_trace("workers", data_wait=96.0)).suggestions == ()


def test_a_short_trace_of_a_healthy_loop_gets_no_advice(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", short_trace("single_process"))
    assert diagnosis.suggestions == ()
    assert "Only 5 steady steps were recorded; predicting a gain needs 20." in diagnosis.sentence


def test_communication_of_one_rank_alone_is_not_said_to_be_free_of_waiting(tmp_path: Path) -> None:
    plant = short_trace("workers", communication=120.0)
    run = build_case_run(tmp_path / "run", plant)
    manifest = dataclasses.replace(run.manifest, world_size=8)
    layout.run_file(run.path).write_text(encode_manifest(manifest), encoding="utf-8")
    (found,) = diagnose(open_run(run.path), 0).suggestions
    assert found.rule == "exposed_all_reduce"
    assert "is unknown, because no other rank was recorded here" in found.measured


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", Plant(RunPlan(steps=0, operators=False)))
    assert diagnosis.bound_by.kind == "unknown"
    assert diagnosis.sentence.startswith("No steps were recorded")


def test_a_run_without_tables_says_so_without_a_path_of_the_server(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan()))
    (run.rank(0).folder / "steps.parquet").unlink()
    assert str(tmp_path) not in diagnose(run, 0).sentence


BUSY = cpu_cores(process=0.5, system=3.9, count=200)
"""A host on which other programs take most of four cores."""


@pytest.mark.parametrize("stage", ["read", "transform", "collate"])
def test_a_starved_step_on_a_busy_host_still_gets_its_stage_named(stage: str, tmp_path: Path) -> None:
    plant = PLANTED[f"slow_{stage}"]
    loud = dataclasses.replace(plant, manifest={"usable_cores": 4.0, "torch_threads": 1}, tables={"resources": BUSY})
    found = {s.rule: s for s in diagnose_plant(tmp_path / "run", loud).suggestions}
    assert found[f"slow_{stage}"].predicted_step_ns is not None


def test_a_doubtful_suggestion_says_why_and_is_not_severe(tmp_path: Path) -> None:
    waits = dataclasses.replace(PLANTED["slow_transform"].plan, phases_ms=plan_of(data_wait=9.0).phases_ms)
    plan = dataclasses.replace(waits, transform_ms=135.0)
    plant = dataclasses.replace(PLANTED["slow_transform"], plan=plan, tables={"resources": BUSY})
    said = next(s for s in diagnose_plant(tmp_path / "run", plant).suggestions if s.rule == "slow_transform")
    assert "Lower confidence: other programs used 1.4 of 2 cores" in said.advice
    assert said.severity in ("medium", "low")


@pytest.mark.parametrize("stage", ["read", "transform", "collate"])
def test_a_stage_suggestion_states_what_it_assumes(stage: str, tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", PLANTED[f"slow_{stage}"])
    assert "The prediction holds if " in diagnosis.suggestions[0].advice
    assert " took " in diagnosis.sentence.split("stage. If ")[1]


def test_workers_that_compute_are_not_asked_for_beyond_the_cores(tmp_path: Path) -> None:
    plant = dataclasses.replace(PLANTED["no_workers"], edit_stages=compute_all, manifest={"usable_cores": 2.0})
    plan = dataclasses.replace(plant.plan, transform_ms=300.0)
    said = diagnose_plant(tmp_path / "run", dataclasses.replace(plant, plan=plan)).suggestions
    changes = [s.change for s in said if s.rule == "no_workers"]
    assert all("num_workers=1," in change or "num_workers=2," in change for change in changes)
    assert changes


def test_a_run_that_only_infers_is_judged_by_its_batches(tmp_path: Path) -> None:
    def infer(steps: list[dict[str, object]]) -> None:
        evaluate(steps)
        del steps[:100]

    diagnosis = diagnose_plant(tmp_path / "run", Plant(edit=infer))
    assert diagnosis.bound_by.kind == "compute"


def test_a_contended_host_raises_the_bar(tmp_path: Path) -> None:
    plant = Plant(edit=stall(10, "tail", 120.0))
    quiet = diagnose_plant(tmp_path / "a", plant)
    assert [s.rule for s in quiet.suggestions] == ["periodic_stall"]
    rows = [
        {"start_ns": 1_000 * MS + n * 10 * MS, "source": source, "metric": "cpu_cores", "value": value}
        for n in range(50)
        for source, value in (("process", 1.0), ("system", 3.8))
    ]
    loud = diagnose_plant(tmp_path / "b", dataclasses.replace(plant, tables={"resources": rows}))
    assert [s.rule for s in loud.suggestions] == ["noisy_host"]


def test_the_model_reproduces_the_run_it_was_measured_from(tmp_path: Path) -> None:
    for name in ("too_few_workers", "uneven_samples", "no_workers"):
        run = build_case_run(tmp_path / name, PLANTED[name])
        case = measure_case(run, run.rank(0))
        assert case is not None
        assert case.loading.loop.check == pytest.approx(1.0, abs=0.1), name


def test_predictions_leave_amortised_events_in_place(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["worker_restart"])
    case = measure_case(run, run.rank(0))
    assert case is not None
    assert case.loading.loop.predict_ns(case.loading.loop.model) == pytest.approx(case.steps.mean_ns, rel=1e-6)
    assert case.loading.loop.model.extra_ns > 30 * MS


def test_a_diagnosis_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", HEALTHY["compute"])
    first = diagnose(run, 0)
    assert diagnose(run, 0) is first
    steps = next(run.rank(0).folder.glob("steps.parquet"))
    os.utime(steps, ns=(1, 1))
    assert diagnose(run, 0) is not first


def test_broken_steps_and_missing_ranks_are_errors(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan()))
    with pytest.raises(RunNotFoundError):
        diagnose(run, 3)
    (run.rank(0).folder / "steps.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(TableBrokenError):
        diagnose(run, 0)


def test_damaged_tables_beside_the_steps_do_not_stop_the_verdict(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", dataclasses.replace(PLANTED["too_few_workers"].plan)))
    for name in ("stages", "queues"):
        (run.rank(0).folder / f"{name}.parquet").write_bytes(b"PAR1 not really")
    diagnosis = diagnose(run, 0)
    assert diagnosis.bound_by.kind == "input"


def test_simulated_gain_of_a_stage_is_that_of_its_share() -> None:
    base = LoopModel(batches=(Job(300.0, 0.0),), steps=(Job(60.0, 0.0),), workers=2, cores=100.0)
    half = dataclasses.replace(base, batches=(Job(150.0, 0.0),))
    assert simulate(base).step_ns == pytest.approx(2 * simulate(half).step_ns, rel=0.02)


def test_nothing_found_in_few_steps_is_said_of_a_trace_and_of_a_run_that_it_was_not_judged(tmp_path: Path) -> None:
    trace = import_trace(write_trace(tmp_path / "trace.json", training_steps(3, 20_000.0)), tmp_path / "trace")
    short = open_run(build_run(tmp_path / "short", RunPlan(steps=5)))
    found = [diagnose(open_run(run.path), run.ranks[0]) for run in (trace, short)]
    assert [entry.suggestions for entry in found] == [(), ()]
    assert found[0].silence.startswith("Nothing was found in these few steps")
    assert found[1].silence.startswith("The rules could not judge this run")
    assert ["torch.profiler.schedule" in entry.abstained[0].how for entry in found] == [True, False]
