"""Where stacks were sampled, a rule names the function, and predicts the step without that function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Suggestion
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.row_edits import act, stall
from tests.support.stacks import in_phase, in_stage, library, own, write_stacks

ITEM = own("Photos.__getitem__", 31, "data.py")
FORWARD = in_phase("forward", 100, own("Net.forward", 7))


def _suggest(path: Path, rule: str, *rows: dict[str, Any], plant: Plant | None = None) -> Suggestion:
    run = build_case_run(path / "run", plant or PLANTED[rule])
    if rows:
        write_stacks(path / "run", [FORWARD, *rows])
    return next(entry for entry in diagnose(run, 0).suggestions if entry.rule == rule)


def _predict(found: Suggestion) -> tuple[float, float, float]:
    prediction = found.predicted_low_ns, found.predicted_step_ns, found.predicted_high_ns
    low, step, high = (value for value in prediction if value is not None)
    return low, step, high


def test_the_function_that_the_gap_goes_to_is_named_and_taken_away(tmp_path: Path) -> None:
    rows = [in_phase("tail", 61, own("accuracy", 88)), in_phase("tail", 30, own("log", 9)), in_phase("gap", 9)]
    found = _suggest(tmp_path / "named", "python_gap", *rows)
    assert found.title == "Every step spends time in accuracy(), outside of training"
    assert "accuracy() at train.py:88 is 61 ± 9 % of this time, log() at train.py:9 30 ± 9 %" in found.measured
    assert "accuracy() took no time" in str(found)
    plain = _suggest(tmp_path / "plain", "python_gap")
    assert "accuracy" not in str(plain)
    low, step, high = _predict(found)
    assert low < step < high


@pytest.mark.parametrize(
    ("rule", "stage", "frames", "name"),
    [
        ("slow_read", "read", (ITEM, library("Image.open", "PIL/Image.py")), "PIL.Image.open()"),
        ("slow_transform", "transform", (own("Blur.__call__", 5), library("conv", "numpy/ma.py")), "numpy.conv()"),
        ("slow_collate", "collate", (own("gather", 3),), "gather()"),
        ("slow_read", "read", (ITEM,), "what data.py:31 does"),
    ],
)
def test_the_function_that_a_stage_goes_to_is_named(
    tmp_path: Path, rule: str, stage: str, frames: tuple[str, ...], name: str
) -> None:
    found = _suggest(tmp_path, rule, in_stage(stage, 80, *frames), in_stage(stage, 20, own("other", 3)))
    assert found.title.endswith(f": {name}")
    assert "80 ± 8 %" in found.measured
    assert found.fix == f"taking {name} out"


def test_more_of_a_function_promises_a_shorter_step(tmp_path: Path) -> None:
    steps = []
    for share in (55, 75, 95):
        rows = [in_stage("read", share, ITEM, own("decode", 4)), in_stage("read", 100 - share, ITEM, own("other", 9))]
        found = _suggest(tmp_path / str(share), "slow_read", *rows)
        low, step, high = _predict(found)
        assert low <= step <= high
        steps.append(step)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


def test_where_nothing_dominates_functions_are_named_and_the_prediction_is_as_ever(tmp_path: Path) -> None:
    rows = [in_stage("read", 10, ITEM, own(f"part_{number}", number)) for number in range(4)]
    found = _suggest(tmp_path / "even", "slow_read", *rows)
    plain = _suggest(tmp_path / "plain", "slow_read")
    assert "part_0() at train.py:0 is 25 ± 13 % of reading" in found.measured
    assert (found.title, found.predicted_step_ns) == (plain.title, plain.predicted_step_ns)


def test_of_too_few_samples_of_a_stage_nothing_is_said(tmp_path: Path) -> None:
    found = _suggest(tmp_path / "few", "slow_read", in_stage("read", 12, ITEM, own("decode", 4)))
    assert "decode" not in str(found)


def test_of_few_samples_of_a_phase_what_is_surely_most_of_it_is_taken_away(tmp_path: Path) -> None:
    found = _suggest(tmp_path / "sure", "python_gap", in_phase("tail", 12, own("accuracy", 88)))
    assert "accuracy() at train.py:88 is 100 ± 12 % of this time" in found.measured
    low, step, high = _predict(found)
    assert low <= step < high


def test_the_function_that_answers_what_a_model_says_is_named_and_not_to_be_left_out(tmp_path: Path) -> None:
    plant = Plant(plan_of(workers=0), edit=act)
    rows = in_phase("gap", 40, own("World.step", 37)), in_phase("gap", 2, own("log", 9))
    found = _suggest(tmp_path / "named", "python_gap", *rows, plant=plant)
    assert found.title == "Every step spends time in World.step(), outside of training"
    assert "most of it around the forward without gradients" in found.measured
    assert "on the whole batch in tensors" in found.advice
    assert "% 50" not in found.change
    plain = _suggest(tmp_path / "plain", "python_gap", plant=plant)
    assert (plain.fix, "% 50" in plain.change) == ("this work on whole tensors", False)
    low, step, high = _predict(found)
    assert low <= step < high


def test_the_function_that_runs_every_so_many_steps_is_named(tmp_path: Path) -> None:
    found = _suggest(
        tmp_path / "named", "periodic_stall", in_phase("tail", 90, own("save_grid", 21)), in_phase("tail", 5)
    )
    assert found.title.endswith(" longer: save_grid()")
    assert "save_grid() at train.py:21" in found.advice
    assert "save_grid()" in found.change
    assert found.fix == "save_grid() four times less often"
    plain = _suggest(tmp_path / "plain", "periodic_stall")
    assert (plain.predicted_step_ns, "save_grid" in str(plain)) == (found.predicted_step_ns, False)


def test_what_most_steps_do_in_a_phase_is_not_blamed_for_stalls(tmp_path: Path) -> None:
    plant = Plant(plan_of(tail=60.0), edit=stall(10, "tail", 300.0))
    rows = in_phase("tail", 60, own("log", 9)), in_phase("tail", 40, own("save_grid", 21))
    assert _suggest(tmp_path, "periodic_stall", *rows, plant=plant).title.endswith(" longer")
