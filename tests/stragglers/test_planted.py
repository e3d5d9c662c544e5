"""A small sample of the campaign, for the gate."""

from __future__ import annotations

import pytest

from tests.stragglers.planted import check_case, plan_cases
from tests.support.jobs import JobPlan

SAMPLE = [*plan_cases(1, (2, 3, 8)), *plan_cases(2, (4, 64)), *list(plan_cases(3, (256,)))[1:2]]


@pytest.mark.parametrize("plan", SAMPLE, ids=lambda plan: f"{plan.ranks}-{len(plan.slow)}-{plan.takes_turns}")
def test_the_planted_culprit_is_named_and_no_other(plan: JobPlan) -> None:
    result = check_case(plan)
    assert result.is_right, result
    assert result.slowdown_ratio == pytest.approx(1.0, abs=0.03)
