"""Suggestions on a host that other programs keep busy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.cases import PLANTED, Plant, plan_of
from tests.support.diagnosing import diagnose_plant
from tests.support.row_edits import compute_all, cpu_cores, queued, stall
from tests.support.runs import MS

BUSY = cpu_cores(process=0.5, system=3.9, count=200)


@pytest.mark.parametrize("stage", ["read", "transform", "collate"])
def test_a_starved_step_on_a_busy_host_still_gets_its_stage_named(stage: str, tmp_path: Path) -> None:
    plant = PLANTED[f"slow_{stage}"]
    # It queues for four fifths of its time, which is more than two other programs on two cores explain.
    queues = {"resources": queued(process=0.2, system=2.0, wait_frac=0.8)}
    loud = dataclasses.replace(plant, manifest={"usable_cores": 2.0, "torch_threads": 1}, tables=queues)
    found = {s.rule: s for s in diagnose_plant(tmp_path / "run", loud).suggestions}
    assert found[f"slow_{stage}"].predicted_step_ns is None
    assert "of its measured step: too far off to predict a step time." in found[f"slow_{stage}"].advice


def test_a_doubtful_suggestion_says_why_and_is_not_severe(tmp_path: Path) -> None:
    waits = dataclasses.replace(PLANTED["slow_transform"].plan, phases_ms=plan_of(data_wait=9.0).phases_ms)
    plan = dataclasses.replace(waits, transform_ms=80.0)
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
