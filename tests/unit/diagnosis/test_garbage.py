"""What a step takes without garbage collection: nothing of it is left, and no more than that is taken from anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import find_rules
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.facts.case import Case, Claim
from tests.support import facts as make
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.row_edits import Row, forget_all
from tests.support.runs import MS
from tests.support.stacks import in_phase, own, write_stacks

COLLECTED_MS = 200


def collect(phase: str, every: int = 1, varies: bool = False) -> Callable[[list[Row]], None]:
    def edit(steps: list[Row]) -> None:
        for at, step in enumerate(steps[::every]):
            took = COLLECTED_MS * MS * (1 + varies * (at % 3))
            step[f"{phase}_ns"] += took
            step["gc_ns"] = took

    return edit


def claim_of(path: Path, plant: Plant, *stacks: Row) -> tuple[Case, Claim]:
    run = build_case_run(path, plant)
    if stacks:
        write_stacks(path, stacks)
    case = measure_case(run, run.rank(0))
    assert case is not None
    rule = next(entry for entry in find_rules().rules if entry.id == "gc_pauses")
    now = Fixed(case.loading.loop.model, case.steps.mean_ns, {})
    return case, make_claim(case, rule, make.find(case, rule.id), now)


@pytest.mark.parametrize("phase", ["tail", "forward"])
@pytest.mark.parametrize("every", [1, 3])
def test_a_step_without_collections_is_what_is_left_of_it(phase: str, every: int, tmp_path: Path) -> None:
    case, claim = claim_of(tmp_path / "run", Plant(plan_of(), edit=collect(phase, every)))
    left_ns = case.steps.mean_ns - make.read_mean(case, "gc_ns")
    assert claim.step_ns == pytest.approx(left_ns, rel=0.05)
    # A collection also throws out what the caches held, so the step may become shorter still.
    assert claim.low_ns < 0.99 * claim.step_ns
    assert claim.step_ns < claim.high_ns < case.steps.mean_ns


def test_steps_that_follow_a_collection_are_longer_by_what_it_threw_out_of_the_caches(tmp_path: Path) -> None:
    def edit(steps: list[Row]) -> None:
        collect("tail", 2)(steps)
        for step in steps[1::2]:
            step["forward_ns"] += 4 * MS

    case, claim = claim_of(tmp_path / "run", Plant(plan_of(), edit=edit))
    left_ns = case.steps.mean_ns - make.read_mean(case, "gc_ns")
    assert claim.step_ns == pytest.approx(left_ns - 2 * MS, abs=0.5 * MS)


def test_collections_while_the_training_thread_makes_batches_shorten_those(tmp_path: Path) -> None:
    plan = plan_of(workers=0, data_wait=30.0)
    plant = Plant(plan, edit=collect("data_wait", varies=True), edit_stages=forget_all)
    case, claim = claim_of(tmp_path / "run", plant)
    what_if = claim.finding.what_if
    assert what_if is not None
    assert what_if.touches["data_wait"] == pytest.approx(make.read_mean(case, "gc_ns"), rel=0.01)
    assert claim.step_ns == pytest.approx(case.steps.mean_ns - make.read_mean(case, "gc_ns"), rel=0.05)


def test_the_line_that_collects_outside_of_training_is_named(tmp_path: Path) -> None:
    rows = in_phase("forward", 100, own("Net.forward", 7)), in_phase("tail", 300)
    _, claim = claim_of(tmp_path / "run", Plant(plan_of(), edit=collect("tail")), *rows)
    assert "of the time outside of training (300 samples)" in claim.finding.measured
    assert "gc.collect()" in claim.finding.advice
