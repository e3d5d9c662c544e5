"""Changes to one run: what they save adds up, what two of them would save is saved once, the larger one comes first."""

from __future__ import annotations

import numpy as np
import pytest

from profiler_server.diagnosis.judging import judge
from profiler_server.diagnosis.ranking import Fixed, make_claim, rank_claims
from profiler_server.diagnosis.rules import gc_pauses, python_gap
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case
from tests.support import facts as make
from tests.unit.diagnosis.edges import thread
from tests.unit.diagnosis.edges.base import STEPS, base


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
    now = Fixed(case.loading.loop.model, case.steps.mean_ns, {})
    first = make_claim(case, python_gap.RULE, gap, now)
    after = Fixed(gap.what_if.change(now.model), first.step_ns, gap.what_if.touches)
    assert make_claim(case, gc_pauses.RULE, garbage, after).step_ns >= 0.97 * first.step_ns
    ranked = rank_claims(case, [(gc_pauses.RULE, garbage), (python_gap.RULE, gap)])
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
