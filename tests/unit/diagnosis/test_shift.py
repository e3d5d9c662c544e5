"""What the rule on lasting changes says, and of which changes it says nothing."""

from __future__ import annotations

import numpy as np
import pytest

from profiler_server.facts.case import Case
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import STEPS, base
from tests.unit.diagnosis.edges.course import shift

HALF = np.arange(STEPS) >= STEPS // 2


def shift_phase(phase: str) -> Case:
    """Steps that take 24 ms longer from the sixty-first on, in one phase."""
    case = make.with_rows(shift(0.375), tail_ns=0)
    return make.with_rows(case, **{f"{phase}_ns": np.where(HALF, 34 * MS, 10 * MS)})


def test_the_step_the_growth_and_the_phase_are_said() -> None:
    found = make.find(shift_phase("data_wait"), "shift")
    since = int(base().steps.selection.step[STEPS // 2])
    assert found.text.title == f"Steps take longer since step {since}"
    assert found.text.measured == (
        f"Since step {since} the usual step takes 88.0 ms instead of 64.0 ms (+37.5 %), most of it in data wait."
    )


@pytest.mark.parametrize(
    ("phase", "advice"),
    [("communication", "the Ranks page says which"), ("data_wait", "a storage"), ("forward", "got hot")],
)
def test_the_advice_follows_the_phase_that_grew(phase: str, advice: str) -> None:
    assert advice in make.find(shift_phase(phase), "shift").text.advice
