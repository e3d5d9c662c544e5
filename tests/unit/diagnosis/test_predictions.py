"""No prediction lies below what is possible, whatever the run and whatever the host."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.format.schema.manifest import Device
from profiler_server.analysis.data.prediction import predict_without_loading
from profiler_server.diagnosis.judging import diagnose, hear_rules
from profiler_server.diagnosis.limits.verdict import EASED_FRAC
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import Fixed, make_claim, rank_claims, write_suggestion
from profiler_server.diagnosis.verdict import find_bound, say_verdict
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Claim, Finding, Rule, Text
from profiler_server.format import format_duration, say_gain
from tests.support.cases import A100, PLANTED, Plant, build_case_run, plan_of, slow
from tests.support.diagnosing import measure, promise
from tests.support.row_edits import Row, queued
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import base

MOST_UNTOUCHED = {
    "exposed_all_reduce": ("communication",),
    "optimizer_loop": ("optimizer",),
    "serial_copy": ("h2d",),
    "python_gap": ("gap", "tail"),
}
"""Phases that the change of a rule can shorten."""


def claim_of(path: Path, rule: str, plant: Plant) -> tuple[Case, Claim]:
    case = measure(build_case_run(path, plant))
    return case, promise(case, rule)


@pytest.mark.parametrize(
    ("rule", "plan", "manifest"),
    [
        ("exposed_all_reduce", dataclasses.replace(plan_of(communication=70.0), ranks=2), {}),
        (
            "optimizer_loop",
            plan_of(optimizer=60.0),
            {"facts": {"optimizers": [{"name": "AdamW", "foreach": False, "fused": None}]}},
        ),
        ("serial_copy", plan_of(h2d=60.0), {}),
        ("python_gap", plan_of(tail=60.0), {}),
    ],
)
def test_on_a_busy_host_a_change_saves_no_more_than_the_phase_that_it_shortens(
    rule: str, plan: Any, manifest: dict[str, Any], tmp_path: Path
) -> None:
    """A step of which four fifths wait for a processor: its work is scaled, and what is saved of it must be, too."""
    busy = {"resources": queued(process=0.2, system=2.0, wait_frac=0.8)}
    plant = Plant(plan, manifest={**manifest, "usable_cores": 2.0}, tables=busy)
    case, claim = claim_of(tmp_path / "run", rule, plant)
    untouched = case.steps.mean_ns - sum(case.steps.phases_ns[name] for name in MOST_UNTOUCHED[rule])
    assert untouched - 1 <= claim.step_ns < case.steps.mean_ns
    eased = 1.0 - EASED_FRAC * (1.0 - claim.step_ns / case.steps.mean_ns) if rule == "python_gap" else 1.0
    assert untouched * eased - 1 <= claim.low_ns <= claim.step_ns


def test_half_of_the_communication_is_half_of_it_on_a_busy_host_too(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_of(communication=70.0), ranks=2)
    busy = {"resources": queued(process=0.2, system=2.0, wait_frac=0.8)}
    plant = Plant(plan, manifest={"usable_cores": 2.0}, tables=busy)
    _, claim = claim_of(tmp_path / "run", "exposed_all_reduce", plant)
    assert claim.step_ns == pytest.approx((64 + 70 / 2) * MS, rel=0.03)


def test_workers_on_a_busy_host_are_not_promised_less_than_the_step_without_its_wait(tmp_path: Path) -> None:
    busy = {"resources": queued(process=0.3, system=2.0, wait_frac=0.7)}
    plant = Plant(slow("read"), manifest={"usable_cores": 2.0, "torch_threads": 2}, tables=busy)
    for found in diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions:
        # Less work for the workers gives back processors that the step queues for; more workers take them.
        if found.predicted_low_ns is not None and "num_workers" in found.settings:
            assert found.predicted_low_ns >= 63.5 * MS, found.rule


_ms = st.sampled_from([0.0, 0.2, 1.0, 5.0, 30.0, 200.0])
_devices: list[tuple[Device, ...]] = [(), (), (A100,)]


@st.composite
def plants(draw: st.DrawFn) -> Plant:
    """Draw a run: any phases, any loader, any host, with steps of no length and missing values among its rows."""
    names = ("gap", "data_wait", "h2d", "forward", "backward", "communication", "optimizer", "tail")
    workers = draw(st.sampled_from([0, 1, 2, 6]))
    plan = plan_of(workers, draw(st.sampled_from([(0, 0, 1), (3, 4), (0,)])), **{name: draw(_ms) for name in names})
    read, transform, collate = (draw(st.sampled_from([0.1, 4.0, 80.0])) for _ in range(3))
    plan = dataclasses.replace(plan, steps=45, read_ms=read, transform_ms=transform, collate_ms=collate)
    plan = dataclasses.replace(plan, pin_memory=draw(st.booleans()), ranks=draw(st.sampled_from([1, 2])))
    empty, stalled, collected = draw(st.booleans()), draw(_ms), draw(_ms)

    def edit(steps: list[Row]) -> None:
        for at, step in enumerate(steps):
            if at % 7 == 6:
                step["tail_ns"] += int(stalled * MS)
            if at % 2:
                step["forward_ns"] += int(collected * MS)
                step["gc_ns"] = int(collected * MS)
            if empty and at % 3 == 0:
                step |= {name: 0 for name in step if name.endswith("_ns") and name != "start_ns"}
            if empty and at % 5 == 0:
                step |= {"loader": None, "batch": None, "epoch": None, "samples": None}

    resources = queued(
        draw(st.sampled_from([0.1, 1.0])), draw(st.sampled_from([1.0, 2.0])), draw(st.sampled_from([0, 0.9]))
    )
    optimizers = [{"name": "AdamW", "foreach": False, "fused": None}]
    manifest = {"usable_cores": 2.0, "devices": draw(st.sampled_from(_devices)), "facts": {"optimizers": optimizers}}
    return Plant(plan, edit, manifest=manifest, tables={"resources": resources})


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(plants())
def test_no_rule_fails_and_no_prediction_lies_below_what_its_change_leaves(plant: Plant) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = build_case_run(Path(folder) / "run", plant)
        diagnosis = diagnose(run, 0)
        case = measure_case(run, run.rank(0))
    assert diagnosis.warnings == ()
    if case is None:
        assert diagnosis.bound_by.kind == "unknown"
        return
    for claim in rank_claims(case, hear_rules(case).findings):
        assert claim.finding.what_if is not None
        left = case.steps.mean_ns - sum(claim.finding.what_if.touches.values())
        if not claim.after:
            assert claim.step_ns >= left - 1, claim.rule.id
            eased = 1.0 - EASED_FRAC if claim.finding.what_if.eases else 1.0
            assert claim.low_ns >= left * eased - 1, claim.rule.id
        assert 0 < claim.low_ns <= claim.step_ns <= claim.high_ns <= case.steps.mean_ns + 1, claim.rule.id


def claim(case: Case, doubt_frac: float | None, rule: str = "slow_read") -> Claim:
    """Return the claim of taking a quarter of the step away."""
    what_if = shorten_step(case, "gap", 0.25 * case.steps.mean_ns, 1.0)
    text = Text("title", "measured", "threshold", "advice", "code", "less of it", "half of it was done")
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
        assert say_gain(said).startswith("If half of it was done: ")
        assert "If half of it was done, a step would take about" in sentence
        assert made.high_ns - made.low_ns <= 0.5 * (case.steps.mean_ns - made.step_ns) + 1
    else:
        assert said.advice == "advice How much it saves is not known beforehand."
        assert sentence.endswith("What to change first: less of it.")


@pytest.mark.parametrize(("doubt_frac", "is_shown"), [(0.1, True), (None, False)])
def test_work_of_which_only_the_user_knows_how_much_can_go_gives_a_bound_and_no_prediction(
    doubt_frac: float | None, is_shown: bool
) -> None:
    case = base()
    made = claim(case, doubt_frac)
    text = replace(made.finding.text, assumption="", removed="crop()")
    made = replace(made, finding=replace(made.finding, text=text))
    said, sentence = write_suggestion(case, made), say_verdict(case, find_bound(case), [made], [])
    assert said.predicted_step_ns is said.predicted_low_ns is said.predicted_high_ns is None
    what_if = made.finding.what_if
    assert what_if is not None
    least_ns = made.low_ns if is_shown else case.steps.mean_ns - sum(what_if.touches.values())
    assert said.least_step_ns == least_ns
    assert not said.is_look
    assert say_gain(said) == f"At best: {format_duration(least_ns)}, if crop() took no time"
    if is_shown:
        figure = format_duration(made.low_ns)
        assert sentence.endswith(f" If crop() took no time, a step would take {figure} at best.")


@pytest.mark.parametrize("wait_frac", [0.001, 0.9])
def test_a_change_that_feeds_the_loop_saves_at_most_what_all_loading_costs_where_its_step_is_not_predicted(
    wait_frac: float,
) -> None:
    case = base()
    made = claim(case, None)
    assert made.finding.what_if is not None
    waited_ns = wait_frac * case.steps.mean_ns
    fed = replace(made.finding.what_if, feeds=True, touches={"data_wait": waited_ns})
    said = write_suggestion(case, replace(made, finding=replace(made.finding, what_if=fed)))
    unfed_ns = predict_without_loading(case.loading.loop, case.loading.loop.model)
    assert 0.1 * case.steps.mean_ns < unfed_ns < 0.999 * case.steps.mean_ns
    assert said.predicted_step_ns is None
    assert said.least_step_ns == pytest.approx(max(case.steps.mean_ns - waited_ns, unfed_ns))
    assert said.condition == "making batches took no time and no processor"


def test_the_order_does_not_depend_on_what_is_shown() -> None:
    case = base()
    shown, hidden = claim(case, 0.0), claim(case, None)
    order = ("usual_ns", "least_gain_ns", "sure_gain_ns")
    assert [getattr(shown, name) for name in order] == [getattr(hidden, name) for name in order]


def test_a_trial_is_offered_where_it_makes_the_change() -> None:
    case = base()
    offer = "`stepscope run --try` measures it."
    assert write_suggestion(case, claim(case, None, "too_few_workers")).advice.endswith(offer)
    assert offer not in write_suggestion(case, claim(case, 0.0, "too_few_workers")).advice
    assert offer not in write_suggestion(case, claim(case, None, "slow_read")).advice


@pytest.mark.parametrize("name", ["slow_read", "slow_transform", "slow_collate"])
def test_a_slow_stage_gets_the_step_without_it_as_a_bound(name: str, tmp_path: Path) -> None:
    """The user takes away all of it, not half."""
    found = next(s for s in diagnose(build_case_run(tmp_path / "run", PLANTED[name]), 0).suggestions if s.rule == name)
    assert found.condition.endswith(" took no time")
    assert "half" not in found.fix
