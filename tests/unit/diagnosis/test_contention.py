"""What is said of workers that compete, how far a fix that is up to the user may go, and what a doubtful simulation decides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from profiler_server.analysis.data.prediction import predict_step
from profiler_server.diagnosis.deriving import choose_workers
from profiler_server.diagnosis.judging import find_rules
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.facts.case import Case, Claim
from tests.support import facts as make
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.row_edits import Row
from tests.support.runs import MS


def case_of(path: Path, plant: Plant) -> Case:
    run = build_case_run(path, plant)
    case = measure_case(run, run.rank(0))
    assert case is not None
    return case


def claim_of(case: Case, name: str) -> Claim:
    rule = next(entry for entry in find_rules().rules if entry.id == name)
    finding = make.find(case, name)
    return make_claim(case, rule, finding, Fixed(case.loading.loop.model, case.steps.mean_ns, {}))


def test_fewer_workers_are_not_proposed_by_a_simulation_that_is_off(tmp_path: Path) -> None:
    case = case_of(tmp_path / "run", PLANTED["oversubscribed_workers"])
    assert make.speaks(make.with_loop(case, check=1.0), "oversubscribed_workers")
    assert not make.speaks(make.with_loop(case, check=0.85), "oversubscribed_workers")
    assert not make.speaks(make.with_loop(case, check=1.2), "oversubscribed_workers")


def test_without_a_simulation_to_trust_workers_are_as_many_as_make_a_batch_per_step(tmp_path: Path) -> None:
    roomy = dataclasses.replace(PLANTED["too_few_workers"], manifest={"usable_cores": 16.0})
    case = make.with_loop(case_of(tmp_path / "run", roomy), check=0.8)
    choice = choose_workers(case)
    own_ns = case.loading.loop.regular_step_ns - case.loading.wait_ns
    assert (choice.workers - 1) * own_ns < case.loading.batch_ns <= choice.workers * own_ns
    assert "simulat" not in choice.reason
    assert "3 %" not in choice.reason
    assert "within 3 % of the best" in choose_workers(make.with_loop(case, check=1.0)).reason


def test_the_lower_end_of_faster_reading_is_a_step_that_reads_nothing(tmp_path: Path) -> None:
    case = case_of(tmp_path / "run", PLANTED["slow_read"])
    claim = claim_of(case, "slow_read")
    what_if = claim.finding.what_if
    assert what_if is not None
    assert what_if.best is not None
    nothing_ns = predict_step(case.loading.loop, what_if.best(case.loading.loop.model))
    floor_ns = case.steps.mean_ns - sum(what_if.touches.values())
    assert claim.low_ns <= max(nothing_ns, floor_ns) + 1
    assert claim.low_ns < claim.step_ns
    assert claim.low_ns >= floor_ns - 1


@pytest.mark.parametrize("collected_ms", [0.0, 24.0])
def test_garbage_that_the_gap_makes_is_collected_at_its_expense(collected_ms: float, tmp_path: Path) -> None:
    def collect(steps: list[Row]) -> None:
        for step in steps[::3]:
            step["gap_ns"] += int(collected_ms * MS)
            step["gc_ns"] = int(collected_ms * MS)

    case = case_of(tmp_path / "run", Plant(plan_of(gap=30.0), edit=collect))
    rest_ns = case.steps.mean_ns - case.steps.phases_ns["gap"] - case.steps.phases_ns["tail"]
    claim = claim_of(case, "python_gap")
    # A fiftieth of the gap is left; what a step spends beside it in the median, such as its tail, hardly counts.
    assert claim.step_ns == pytest.approx(rest_ns + case.steps.phases_ns["gap"] / 50, rel=0.03)


def test_stalls_in_the_gap_are_no_usual_work(tmp_path: Path) -> None:
    def stall(steps: list[Row]) -> None:
        for step in steps[::10]:
            step["gap_ns"] += 300 * MS

    case = case_of(tmp_path / "run", Plant(plan_of(gap=30.0), edit=stall))
    usual = case.steps.mean_ns - claim_of(case, "python_gap").step_ns
    assert usual == pytest.approx(31.0 * MS, rel=0.05)
