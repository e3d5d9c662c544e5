"""Rules on a replayed window: they speak of their cause, predict the step without it, and are silent without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from collector.format.run import Run
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis
from tests.support.diagnosing import Golden, measure, write_out
from tests.support.varying import write_findings
from tests.support.window_cases import HEALTHY_WINDOWS, POINTWISE, WINDOW_CASES
from tests.support.windows import Machine, Step, build_window, compute

Judge = Callable[[Step], tuple[Run, Diagnosis]]
PREDICTED = [rule for rule, case in WINDOW_CASES.items() if case.mended is not None]


@pytest.fixture(scope="module")
def diagnose_window(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Return what records steps and judges them, once for each kind of step."""

    @cache
    def judge(body: Step) -> tuple[Run, Diagnosis]:
        run = build_window(tmp_path_factory.mktemp("window"), body)
        return run, diagnose(run, 0)

    return judge


def mean_step_ns(run: Run) -> float:
    return float(run.rank().table("steps").to_pandas()["duration_ns"].iloc[5:-1].mean())


UNSURE = ("misaligned_shapes", "sdpa_unused", "unfused_pointwise")
"""Rules on kernels whose other form the window does not show."""


@pytest.mark.parametrize("rule", WINDOW_CASES)
def test_a_rule_speaks_of_its_cause(rule: str, diagnose_window: Judge, golden: Golden) -> None:
    run, diagnosis = diagnose_window(WINDOW_CASES[rule].planted)
    said = {entry.rule: entry for entry in diagnosis.suggestions}
    assert rule in said
    found = said[rule]
    golden(f"rules/{rule}", write_out(diagnosis, rule))
    golden(f"facts/{rule}", write_findings(measure(run), rule))
    assert all((found.title, found.measured, found.threshold, found.advice, found.change, found.evidence))
    if rule in UNSURE:
        assert found.predicted_step_ns is None
        return
    assert found.predicted_low_ns is not None
    assert found.predicted_step_ns is not None
    assert found.predicted_high_ns is not None
    assert 0 < found.predicted_low_ns <= found.predicted_step_ns <= found.predicted_high_ns


@pytest.mark.parametrize("rule", PREDICTED)
def test_the_step_without_the_cause_is_the_one_that_was_predicted(rule: str, diagnose_window: Judge) -> None:
    case = WINDOW_CASES[rule]
    assert case.mended is not None
    _, diagnosis = diagnose_window(case.planted)
    mended, _ = diagnose_window(case.mended)
    found = next(entry for entry in diagnosis.suggestions if entry.rule == rule)
    assert found.predicted_step_ns == pytest.approx(mean_step_ns(mended), rel=0.15)


@pytest.mark.parametrize("rule", PREDICTED)
def test_a_rule_is_silent_where_its_cause_is_gone(rule: str, diagnose_window: Judge) -> None:
    case = WINDOW_CASES[rule]
    assert case.mended is not None
    _, diagnosis = diagnose_window(case.mended)
    assert rule not in {entry.rule for entry in diagnosis.suggestions}


@pytest.mark.parametrize("name", HEALTHY_WINDOWS)
def test_a_healthy_window_gets_no_advice(name: str, diagnose_window: Judge) -> None:
    _, diagnosis = diagnose_window(HEALTHY_WINDOWS[name])
    assert [entry.rule for entry in diagnosis.suggestions] == []


def update(machine: Machine, loops: bool) -> None:
    def change() -> None:
        for _ in range(100 if loops else 0):
            machine.run("aten::mul_", 3.0, 10.0, POINTWISE)
            machine.run("aten::add_", 3.0, 10.0, POINTWISE)
        if not loops:
            machine.run("aten::_foreach_add_", 120.0, 60.0, "multi_tensor_apply")

    compute(machine, 5)
    machine.mark("Optimizer.step#SGD.step", change)


@pytest.mark.parametrize(("loops", "rules"), [(True, {"optimizer_loop"}), (False, set())])
def test_an_update_that_loops_is_seen_in_a_trace_that_has_no_settings(
    loops: bool, rules: set[str], diagnose_window: Judge
) -> None:
    _, diagnosis = diagnose_window(lambda machine: update(machine, loops))
    said = {entry.rule: entry for entry in diagnosis.suggestions}
    assert said.keys() & {"optimizer_loop"} == rules
    assert not loops or "torch.optim.SGD(model.parameters(), fused=True)" in said["optimizer_loop"].change
