"""Python of the user's inside of the step: what is surely no operator counts, and is told by its function."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis, Suggestion
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.own_work import CALLS_MODEL, MINES, MODULE, ONE_BY_ONE, TRAINS, call_operators, late, spend_operators
from tests.support.plants import A100
from tests.support.row_edits import Row
from tests.support.runs import HEALTHY_STEP_MS, MS
from tests.support.stacks import in_phase, library, own

RULE = "python_in_step"
STEP_MS = sum(HEALTHY_STEP_MS.values())


def judge(path: Path, *rows: Row, forward_ms: float = 4.0, plant: Plant | None = None) -> Diagnosis:
    """Judge a run with these stacks, whose detailed steps spend so long in operators of the forward of 20 ms."""
    plan = plan_of() if plant is None else plant.plan
    tables = {"stacks": late(*rows, *TRAINS), "operators": spend_operators(forward=forward_ms, backward=30.0)}
    return diagnose(build_case_run(path, Plant(plan, tables=tables)), 0)


def find(diagnosis: Diagnosis) -> Suggestion | None:
    return next((found for found in diagnosis.suggestions if found.rule == RULE), None)


def test_a_function_between_the_modules_is_named_with_a_step_without_it(tmp_path: Path) -> None:
    found = find(judge(tmp_path / "run", CALLS_MODEL, MINES))
    assert found is not None
    assert found.title == "Every step waits for Python code: mine()"
    assert "mine() at train.py:41" in found.measured
    assert "mine() took no time" in found.advice
    assert found.shortens == ("forward",)
    assert found.predicted_step_ns == pytest.approx((STEP_MS - 0.74 * 20) * MS, rel=0.03)
    assert found.predicted_low_ns is not None
    assert found.predicted_low_ns >= (STEP_MS - 0.8 * 20) * MS * 0.93


@pytest.mark.parametrize(
    "frames",
    [
        (*MODULE, own("sample", 12, "model.py")),
        (own("mine", 41), library("cdist", "torch/functional.py")),
        (own("Net.forward", 7), own("sample", 12, "model.py")),
        (own("mine", 41), "… (…:0)", own("sample", 12, "model.py")),
    ],
    ids=["in a module", "in torch", "in a forward that is called by itself", "in what was left out of a deep stack"],
)
def test_code_of_modules_and_of_torch_is_not_blamed(tmp_path: Path, frames: tuple[str, ...]) -> None:
    assert find(judge(tmp_path / "run", CALLS_MODEL, in_phase("forward", 80, *frames))) is None


LOOP = "rows_in_loop"


def find_loop(path: Path, operators: list[Row], **plant: object) -> Suggestion | None:
    tables = {"operators": operators, "stacks": late(in_phase("forward", 80, own("embed", 12, "model.py")), *TRAINS)}
    run = build_case_run(path, Plant(plan_of(), tables=tables, **plant))  # type: ignore[arg-type]
    return next((found for found in diagnose(run, 0).suggestions if found.rule == LOOP), None)


def test_the_function_is_named_without_a_step_where_the_cost_of_the_calls_is_unsure(tmp_path: Path) -> None:
    found = find_loop(tmp_path / "run", call_operators(*ONE_BY_ONE))
    assert found is not None
    assert found.title == "Every step handles 32 rows one by one: embed()"
    assert "96 operators for them (aten::linear, aten::select)" in found.measured
    assert found.shortens == ("forward", "backward")
    # Of forward 0.5 to 1.1 ms and of backward 15 to 30 ms go.
    assert (found.predicted_step_ns, found.predicted_low_ns, found.predicted_high_ns) == (None, None, None)
    assert "How much it saves is not known beforehand." in found.advice


def test_no_step_is_predicted_where_rows_may_need_each_other(tmp_path: Path) -> None:
    operators = call_operators(*ONE_BY_ONE)
    found = find_loop(tmp_path / "run", operators, loader={"batch_size": 8})
    assert found is not None
    assert (found.severity, found.predicted_step_ns) == ("low", None)
    assert "If a row needs the result of the one before, a loop is right" in found.advice


@pytest.mark.parametrize("backward_ms", [30.0, 0.0])
def test_a_loop_that_takes_little_is_not_told(backward_ms: float, tmp_path: Path) -> None:
    select = ("forward", "aten::select", "[[32,64],[],[]]", 32, 0.1)
    rest = ("forward", "aten::mm", "[[64,64],[64,64]]", 1, 19.0)
    costly = call_operators(rest, flops=18.0e-3 * 60e9)
    loop = ("backward", "SelectBackward0", "[[64]]", 32, 30.0)
    found = find_loop(tmp_path / "run", [*call_operators(select, *([loop] if backward_ms else [])), *costly])
    assert (found is not None) == bool(backward_ms)


def test_beside_a_device_its_times_have_to_say_what_is_slow(tmp_path: Path) -> None:
    assert find_loop(tmp_path / "run", call_operators(*ONE_BY_ONE), manifest={"devices": (A100,)}) is None
