"""A loop over rows is told with what one call for all of them saves, and no time is promised where rows may need each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Suggestion
from tests.support.own_work import ONE_BY_ONE, TRAINS, call_operators, late
from tests.support.plants import A100, Plant, build_case_run, plan_of
from tests.support.row_edits import Row
from tests.support.runs import HEALTHY_STEP_MS, MS
from tests.support.stacks import in_phase, own

RULE = "rows_in_loop"
STEP_MS = sum(HEALTHY_STEP_MS.values())


def find(path: Path, operators: list[Row], **plant: object) -> Suggestion | None:
    tables = {"operators": operators, "stacks": late(in_phase("forward", 80, own("embed", 12, "model.py")), *TRAINS)}
    run = build_case_run(path, Plant(plan_of(), tables=tables, **plant))  # type: ignore[arg-type]
    return next((found for found in diagnose(run, 0).suggestions if found.rule == RULE), None)


def test_the_function_is_named_with_a_step_without_the_calls(tmp_path: Path) -> None:
    found = find(tmp_path / "run", call_operators(*ONE_BY_ONE))
    assert found is not None
    assert found.title == "Every step handles 32 rows one by one: embed()"
    assert "96 operators for them (aten::linear, aten::select)" in found.measured
    assert found.shortens == ("forward", "backward")
    # Of forward 0.5 to 1.1 ms and of backward 15 to 30 ms go.
    assert found.predicted_step_ns == pytest.approx((STEP_MS - 0.8 - 22.5) * MS, rel=0.03)
    low_ns, usual_ns, high_ns = found.predicted_low_ns, found.predicted_step_ns, found.predicted_high_ns
    assert low_ns is not None
    assert usual_ns is not None
    assert high_ns is not None
    assert low_ns < usual_ns < high_ns
    assert "one call handled all 32 rows" in found.advice


def test_no_step_is_predicted_where_rows_may_need_each_other(tmp_path: Path) -> None:
    operators = call_operators(*ONE_BY_ONE)
    found = find(tmp_path / "run", operators, loader={"batch_size": 8})
    assert found is not None
    assert (found.severity, found.predicted_step_ns) == ("low", None)
    assert "If a row needs the result of the one before, a loop is right" in found.advice


@pytest.mark.parametrize("backward_ms", [30.0, 0.0])
def test_a_loop_that_takes_little_is_not_told(backward_ms: float, tmp_path: Path) -> None:
    select = ("forward", "aten::select", "[[32,64],[],[]]", 32, 0.1)
    rest = ("forward", "aten::mm", "[[64,64],[64,64]]", 1, 19.0)
    costly = call_operators(rest, flops=18.0e-3 * 60e9)
    loop = ("backward", "SelectBackward0", "[[64]]", 32, 30.0)
    found = find(tmp_path / "run", [*call_operators(select, *([loop] if backward_ms else [])), *costly])
    assert (found is not None) == bool(backward_ms)


def test_beside_a_device_its_times_have_to_say_what_is_slow(tmp_path: Path) -> None:
    assert find(tmp_path / "run", call_operators(*ONE_BY_ONE), manifest={"devices": (A100,)}) is None
