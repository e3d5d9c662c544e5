"""Every rule speaks in its planted case, none in a healthy one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose, find_rules
from profiler_server.facts.results import Diagnosis
from profiler_server.format import format_duration
from tests.support.cases import HEALTHY, PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import Golden, write_out
from tests.support.row_edits import evaluate_in_passes, fetch_in_groups, lay_end_to_end, roll_out, write_rows
from tests.support.runs import MS, build_steps
from tests.support.window_cases import OF_WINDOWS, WINDOW_CASES

OF_TRACES = ("uneven_stages", "launch_bound", "tf32_off", "amp_off", "clock_throttle", *OF_WINDOWS, *WINDOW_CASES)
"""Rules that need a trace: see `test_device`, `test_window_rules` and `tests/golden/test_pipelines`."""


BEHIND: Mapping[str, Callable[[int, int], str]] = {
    "fixed_straggler": lambda rank, step: ("communication", "backward")[rank],
    "slow_rank_loader": lambda rank, step: ("communication", "data_wait")[rank],
    "rotating_straggler": lambda rank, step: "backward" if step % 2 == rank else "communication",
}
"""The phase that takes longer: rank 1 is behind, or each by turns, and the other is held for it."""


def run_plant(path: Path, rule: str) -> Diagnosis:
    run = build_case_run(path, PLANTED[rule])
    for rank in (0, 1) if rule in BEHIND else ():
        rows = build_steps(PLANTED[rule].plan)
        for row in rows:
            row[f"{BEHIND[rule](rank, row['step'])}_ns"] += (60 if rule == "rotating_straggler" else 20) * MS
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    if rule in (*BEHIND, "exposed_all_reduce"):
        assert run.manifest.world_size == 2
    return diagnose(run, 0)


def test_every_rule_has_a_planted_case() -> None:
    assert {rule.id for rule in find_rules().rules} == {*PLANTED, *OF_TRACES}


@pytest.mark.parametrize("rule", PLANTED)
def test_rule_speaks_in_its_case(rule: str, tmp_path: Path, golden: Golden) -> None:
    found = {entry.rule: entry for entry in run_plant(tmp_path / "run", rule).suggestions}
    assert rule in found
    said = found[rule]
    golden(f"rules/{rule}", write_out(said))
    assert all((said.title, said.measured, said.threshold, said.advice, said.change, said.evidence))
    if said.predicted_step_ns is not None:
        assert said.predicted_low_ns is not None
        assert said.predicted_high_ns is not None
        assert 0 <= said.predicted_low_ns <= said.predicted_step_ns <= said.predicted_high_ns


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_run_gets_no_advice(name: str, tmp_path: Path) -> None:
    diagnosis = diagnose(build_case_run(tmp_path / "run", HEALTHY[name]), 0)
    assert [entry.rule for entry in diagnosis.suggestions] == []
    assert diagnosis.bound_by.kind == "compute"


def test_every_rule_stays_silent_below_its_threshold(tmp_path: Path) -> None:
    """Twenty steps are needed: the same planted runs, cut short, get no advice but a reason."""
    for rule in ("too_few_workers", "slow_transform", "periodic_stall"):
        plant = PLANTED[rule]
        short = dataclasses.replace(plant, plan=dataclasses.replace(plant.plan, steps=15))
        diagnosis = diagnose(build_case_run(tmp_path / rule, short), 0)
        assert diagnosis.suggestions == ()
        assert [entry.rule for entry in diagnosis.abstained] == ["all"]


def test_workers_for_an_iterable_dataset_come_with_the_split_that_they_need(tmp_path: Path) -> None:
    plant = dataclasses.replace(PLANTED["no_workers"], loader={"style": "iterable"})
    found = {entry.rule: entry for entry in diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions}
    assert "IterableDataset" in found["no_workers"].advice
    assert "get_worker_info()" in found["no_workers"].change


def test_a_loader_that_is_made_anew_is_to_be_made_once(tmp_path: Path) -> None:
    plant = dataclasses.replace(PLANTED["worker_restart"], loader={"remade": 9, "persistent_workers": True})
    found = {entry.rule: entry for entry in diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions}
    assert found["worker_restart"].title == "The DataLoader is created again in every epoch"
    assert "made once, before the loop over epochs" in found["worker_restart"].change


def test_more_workers_are_to_be_kept_alive(tmp_path: Path) -> None:
    plant = dataclasses.replace(PLANTED["too_few_workers"], loader={"persistent_workers": False})
    found = {entry.rule: entry for entry in diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions}
    assert "persistent_workers=True,  # was default" in found["too_few_workers"].change
    assert "Keep them alive between epochs" in found["too_few_workers"].advice


@pytest.mark.parametrize(
    ("cpu_frac", "where"), [(0.1, "thread with a queue"), (0.9, "in a worker process: it computes")]
)
def test_a_reader_beside_the_training_saves_no_more_than_the_wait(cpu_frac: float, where: str, tmp_path: Path) -> None:
    plant = PLANTED["watched_input"]
    plant = dataclasses.replace(plant, loader={**plant.loader, "cpu_frac": cpu_frac})
    run = build_case_run(tmp_path / "run", plant)
    (said,) = [entry for entry in diagnose(run, 0).suggestions if entry.rule == "watched_input"]
    assert where in said.advice
    steps = run.rank(0).table("steps").to_pandas()
    own_ns = float((steps["duration_ns"] - steps["data_wait_ns"]).mean())
    assert said.predicted_step_ns is not None
    assert said.predicted_low_ns is not None
    assert own_ns <= said.predicted_low_ns <= said.predicted_step_ns < steps["duration_ns"].mean()


def test_calls_without_gradients_that_no_loader_feeds_may_be_a_rollout(tmp_path: Path) -> None:
    diagnosis = diagnose(build_case_run(tmp_path / "run", Plant(edit=roll_out)), 0)
    (said,) = [entry for entry in diagnosis.suggestions if entry.rule == "validation_share"]
    assert "loader" not in said.advice
    assert "several environments at once" in said.advice
    assert "50 calls of the model without gradients" in said.measured


@pytest.mark.parametrize(
    ("passes", "words", "less"), [(1, "half of the samples", 0.5), (3, "second", 2 / 3), (10, "fifth", 0.2)]
)
def test_less_evaluation_is_predicted_for_the_whole_loop(passes: int, words: str, less: float, tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(edit=lambda steps: evaluate_in_passes(steps, passes)))
    (said,) = [entry for entry in diagnose(run, 0).suggestions if entry.rule == "validation_share"]
    spent = run.rank(0).table("steps").to_pandas().groupby("kind")["duration_ns"].sum()
    then = format_duration(spent["train"] + less * spent["eval"])
    assert words in said.advice
    assert f"training and evaluation would take {then}" in said.advice
    assert f"instead of {format_duration(spent.sum())}" in said.advice


def test_a_watched_input_slower_than_the_step_is_split_among_workers(tmp_path: Path) -> None:
    plant = PLANTED["watched_input"]
    plant = dataclasses.replace(plant, plan=plan_of(workers=0, data_wait=200.0))
    run = build_case_run(tmp_path / "run", plant)
    (said,) = [entry for entry in diagnose(run, 0).suggestions if entry.rule == "watched_input"]
    assert "info.num_workers" in said.change
    assert "each its own part" in said.advice
    assert said.predicted_step_ns is not None
    assert said.predicted_step_ns < 200 * MS  # which one reader alone would take


def test_a_loop_that_fetches_groups_gets_the_prediction_of_one_that_does_not(tmp_path: Path) -> None:
    plant = PLANTED["too_few_workers"]
    found = []
    for name, edit in (("plain", None), ("groups", fetch_in_groups)):
        diagnosis = diagnose(build_case_run(tmp_path / name, dataclasses.replace(plant, edit=edit)), 0)
        found += [entry.predicted_step_ns for entry in diagnosis.suggestions if entry.rule == "too_few_workers"]
    plain, groups = found
    assert plain is not None
    assert groups == pytest.approx(plain, rel=0.1)
