"""What a step takes without garbage collection, and what two changes to one step save together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from profiler_server.diagnosis.judging import find_rules, judge
from profiler_server.diagnosis.ranking import Fixed, make_claim, rank_claims
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Claim
from tests.support import facts as make
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.diagnosing import measure, promise
from tests.support.row_edits import Row, forget_all
from tests.support.runs import MS
from tests.support.stacks import in_phase, own, write_stacks
from tests.unit.diagnosis.edges import thread
from tests.unit.diagnosis.edges.base import STEPS, base

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
    case = measure(run)
    return case, promise(case, "gc_pauses")


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
    assert "of this time (300 samples)" in claim.finding.text.measured
    assert claim.finding.text.title == "Garbage collection interrupts the steps in main()"
    assert "gc.collect() in main()" in claim.finding.text.advice


@pytest.mark.parametrize(("outside_ms", "is_named"), [(90, False), (110, True)])
def test_a_line_outside_of_training_is_named_for_half_of_the_collections(
    outside_ms: int, is_named: bool, tmp_path: Path
) -> None:
    def edit(steps: list[Row]) -> None:
        for step in steps[::2]:
            step["tail_ns"] += outside_ms * MS
            step["forward_ns"] += (COLLECTED_MS - outside_ms) * MS
            step["gc_ns"] = COLLECTED_MS * MS

    rows = in_phase("forward", 100, own("Net.forward", 7)), in_phase("tail", 300)
    _, claim = claim_of(tmp_path / "run", Plant(plan_of(), edit=edit), *rows)
    assert claim.finding.text.title.endswith("in main()") is is_named


def collecting(phase: str) -> Case:
    """Every second step collects garbage for 0.3 of the mean step, in the gap or in the forward; all have a gap of 0.3."""
    case = make.split_step(base(), gap=np.full(STEPS, 0.3))
    mean = case.steps.mean_ns
    collected = np.where(np.arange(STEPS) % 2, 0.3 * mean, 0.0)
    changed = {"gap_ns": 0.3 * mean + collected} if phase == "gap" else {"forward_ns": 0.5 * mean + collected}
    spent = {**dict.fromkeys(case.steps.phases_ns, 0.0), "gap": float(np.mean(changed.get("gap_ns", 0.3 * mean)))}
    spent["forward"] = mean - spent["gap"]
    return make.with_rows(make.with_steps(case, phases_ns=spent), gc_ns=collected, **changed)


def test_what_two_changes_save_of_a_step_adds_up() -> None:
    case = base()
    own_ns = case.loading.loop.own_ns
    first, second = (shorten_step(case, part, share * own_ns, 1.0) for part, share in (("a", 0.5), ("b", 0.4)))
    model = second.change(first.change(case.loading.loop.model))
    left = sum(step.wall_ns for step in model.steps) / sum(step.wall_ns for step in case.loading.loop.model.steps)
    assert left == pytest.approx(0.1)


@pytest.mark.parametrize(("phase", "outside"), [("gap", 1.0), ("forward", 0.0)])
def test_garbage_that_is_collected_outside_of_training_counts_as_that(phase: str, outside: float) -> None:
    what_if = make.find(collecting(phase), "gc_pauses").what_if
    collected = what_if.touches["outside"] + what_if.touches["gc"]
    assert what_if.touches["outside"] == pytest.approx(outside * collected)


def test_less_work_between_the_steps_leaves_no_garbage_of_it_to_save() -> None:
    case = collecting("gap")
    gap, garbage = make.find(case, "python_gap"), make.find(case, "gc_pauses")
    rules = {rule.id: rule for rule in find_rules().rules}
    now = Fixed(case.loading.loop.model, case.steps.mean_ns, {})
    first = make_claim(case, rules["python_gap"], gap, now)
    after = Fixed(gap.what_if.change(now.model), first.step_ns, gap.what_if.touches)
    assert make_claim(case, rules["gc_pauses"], garbage, after).step_ns >= 0.97 * first.step_ns
    ranked = rank_claims(case, [(rules["gc_pauses"], garbage), (rules["python_gap"], gap)])
    assert [claim.rule.id for claim in ranked] == ["python_gap", "gc_pauses"]
    assert ranked[1].instead_of


@pytest.mark.parametrize(("evaluated", "first"), [(0.55, "validation_share"), (0.3, "python_gap")])
def test_less_evaluation_comes_before_a_change_to_the_step_that_saves_less_of_the_run(
    evaluated: float, first: str
) -> None:
    """The gap is two fifths of each step."""
    case = thread.evaluating(evaluated)
    rows = make.split_step(base(), gap=np.full(STEPS, 0.4)).steps
    phases = {**dict.fromkeys(case.steps.phases_ns, 0.0), "gap": 0.4 * case.steps.mean_ns}
    case = make.with_steps(case, rows=rows.rows, phases_ns=phases)
    found = judge(case)
    assert found.suggestions[0].rule == first
    assert {"validation_share", "python_gap"} <= {entry.rule for entry in found.suggestions}
    assert ("Evaluation takes a large part of the run. " in found.sentence) == (first == "validation_share")
