"""A diagnosis of a run that lacks something: what is there is judged, what is not is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema.errors import RunNotFoundError, TableBrokenError
from profiler_server.diagnosis.judging import diagnose
from tests.support.cases import A100, PLANTED, Plant, plan_of
from tests.support.diagnosing import diagnose_plant
from tests.support.runs import RunPlan, build_run


def test_missing_signals_make_rules_abstain_and_say_how_to_get_them(tmp_path: Path) -> None:
    without_stages = Plant(plan_of(depths=(0, 0, 0, 1), data_wait=96.0), edit_stages=lambda rows: rows.clear())
    found = {entry.rule: entry for entry in diagnose_plant(tmp_path / "a", without_stages).abstained}
    assert "data_pipeline=True" in found["too_few_workers"].how
    device = diagnose_plant(tmp_path / "b", Plant(manifest={"devices": (A100,)})).abstained
    assert {entry.rule for entry in device} >= {"launch_bound", "sync_points", "small_copies"}
    assert {entry.how for entry in device} == {'Record with Profiler(window="auto").'}
    update = diagnose_plant(tmp_path / "c", Plant(plan_of(optimizer=40.0))).abstained
    assert [entry.rule for entry in update] == ["optimizer_loop"]


def test_few_steps_get_a_verdict_without_advice(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", Plant(RunPlan(steps=8)))
    assert diagnosis.bound_by.kind == "compute"
    assert diagnosis.bound_by.confidence_frac == pytest.approx((8 / 20) ** 0.5)
    assert "Only 7 steady steps were recorded; advice needs 20." in diagnosis.sentence
    assert [(entry.rule, entry.missing) for entry in diagnosis.abstained] == [
        ("all", "13 more steady steps (20 are needed, the run has 7)")
    ]


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", Plant(RunPlan(steps=0, operators=False)))
    assert diagnosis.bound_by.kind == "unknown"
    assert diagnosis.sentence.startswith("No steps were recorded")


def test_a_run_without_tables_says_so_without_a_path_of_the_server(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan()))
    (run.rank(0).folder / "steps.parquet").unlink()
    assert str(tmp_path) not in diagnose(run, 0).sentence


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
