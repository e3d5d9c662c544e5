"""A prediction is for the extent that its suggestion states, and its range is only doubt; without that, no figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.ranking import Fixed, make_claim, write_suggestion
from profiler_server.diagnosis.verdict import find_bound, say_verdict
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Claim, Finding, Rule, Text
from tests.support.cases import PLANTED, build_case_run
from tests.unit.diagnosis.edges.base import base


def claim(case: Case, doubt_frac: float | None, rule: str = "slow_read") -> Claim:
    """Return the claim of taking a quarter of the step away."""
    what_if = shorten_step(case, "gap", 0.25 * case.steps.mean_ns, 1.0)
    text = Text("title", "measured", "threshold", "advice", "code", "less of it", "it took no time")
    finding = Finding(text, (), what_if=what_if, doubt_frac=doubt_frac)
    known = Rule(rule, knob="x", effort="code", judge=lambda case: None)
    return make_claim(case, known, finding, Fixed(case.loading.loop.model, case.steps.mean_ns, {}))


@pytest.mark.parametrize(("doubt_frac", "is_shown"), [(0.0, True), (0.2, True), (0.27, False), (None, False)])
def test_a_step_is_shown_if_the_doubt_is_at_most_a_quarter_of_the_saving(
    doubt_frac: float | None, is_shown: bool
) -> None:
    case = base()
    made = claim(case, doubt_frac)
    said = write_suggestion(case, made)
    sentence = say_verdict(case, find_bound(case), [made], [])
    assert made.is_shown is is_shown
    assert (said.predicted_step_ns is not None) is is_shown
    assert (said.predicted_low_ns is not None) is (said.predicted_high_ns is not None) is is_shown
    if is_shown:
        assert (said.condition, said.states) == ("it took no time", "If it took no time")
        assert "If it took no time, a step would take about" in sentence
        assert made.high_ns - made.low_ns <= 0.5 * (case.steps.mean_ns - made.step_ns) + 1
    else:
        assert said.advice == "advice How much it saves is not known beforehand."
        assert sentence.endswith("What to change first: less of it.")


def test_the_order_does_not_depend_on_what_is_shown() -> None:
    case = base()
    shown, hidden = claim(case, 0.0), claim(case, None)
    order = ("usual_ns", "least_gain_ns", "sure_gain_ns")
    assert [getattr(shown, name) for name in order] == [getattr(hidden, name) for name in order]


def test_a_trial_is_offered_where_it_makes_the_change() -> None:
    case = base()
    offer = "`profiler-run --try` measures it."
    assert write_suggestion(case, claim(case, None, "too_few_workers")).advice.endswith(offer)
    assert offer not in write_suggestion(case, claim(case, 0.0, "too_few_workers")).advice
    assert offer not in write_suggestion(case, claim(case, None, "slow_read")).advice


@pytest.mark.parametrize("name", ["slow_read", "slow_transform", "slow_collate"])
def test_a_slow_stage_is_predicted_to_be_gone(name: str, tmp_path: Path) -> None:
    """The user takes away all of it, not half."""
    found = next(s for s in diagnose(build_case_run(tmp_path / "run", PLANTED[name]), 0).suggestions if s.rule == name)
    assert found.condition.endswith(" took no time")
    assert "half" not in found.fix
