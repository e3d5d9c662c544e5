"""Traces of a few steps: what they show is said, a step time is not predicted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import encode_manifest
from collector.traces import import_trace
from profiler_server.diagnosis.judging import diagnose
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.diagnosing import diagnose_plant
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace


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


def test_nothing_found_in_few_steps_is_said_of_a_trace_and_of_a_run_that_it_was_not_judged(tmp_path: Path) -> None:
    trace = import_trace(write_trace(tmp_path / "trace.json", training_steps(3, 20_000.0)), tmp_path / "trace")
    short = open_run(build_run(tmp_path / "short", RunPlan(steps=5)))
    found = [diagnose(open_run(run.path), run.ranks[0]) for run in (trace, short)]
    assert [entry.suggestions for entry in found] == [(), ()]
    assert found[0].silence.startswith("Nothing was found in these few steps")
    assert found[1].silence == "Advice needs 20 steady steps; this run has 4."
    assert ["torch.profiler.schedule" in entry.abstained[0].how for entry in found] == [True, False]
