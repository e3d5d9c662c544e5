"""A line is named by the kind of work that was seen of it, and a healthy loop has at most two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler_server.diagnosis.judging import judge
from profiler_server.facts.case import THREADS, WORKERS, Hotspot, Line, LineOperator, LineWork
from profiler_server.format import say_gain
from profiler_server.report.text import list_lacks
from tests.support import facts as make
from tests.support.cases import PLANTED, build_case_run
from tests.support.diagnosing import measure
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.lines import alone, course, spot, titles, with_lines, work
from tests.unit.diagnosis.edges.noted import logging

MOVES = LineWork((LineOperator("aten::_to_copy", 4, 1e6), LineOperator("aten::mul", 1, 1e5)), 5, 1e6, 0.9, 0.5)


@pytest.mark.parametrize(
    ("found", "title"),
    [
        (spot(), "mine() takes 40.0 % of the step"),
        (spot(made_frac=0.3), "mine() makes something anew in each step"),
        (spot(doing="loader", made_frac=0.3), "mine() makes something anew in each step"),
        (
            spot(phases={"tail": 0.4}, calls={"sklearn.roc_auc_score": 0.4}),
            "The step waits for sklearn.roc_auc_score, whose result it does not need",
        ),
        (spot(lines=(Line(7, 0.4, "rows = scores.tolist()"),)), "mine() converts between tensors, numbers and arrays"),
        (spot(work=MOVES, backward_frac=0.1), "mine() converts between tensors, numbers and arrays"),
        (spot(work=work(calls=801, mean_ns=5e4), backward_frac=0.1), "mine() calls aten::tanh 801 times in each step"),
        (spot(work=work()), "mine() may compute the same in each step"),
        (spot(work=work(operator_frac=0.1)), "mine() is Python, not operators"),
        (spot(course=course()), "mine() takes longer with every step"),
        (spot(course=course(error_ns=1e9, asleep_frac=0.6)), "mine() waits, and computes nothing"),
        (spot(is_of_loop=True), "train.py:41 takes 40.0 % of the step"),
        (spot(phases={THREADS: 0.3, "tail": 0.1}), "The step waits while other threads run mine()"),
    ],
)
def test_a_pattern_names_the_line(found: Hotspot, title: str) -> None:
    assert titles(found) == (title,)


@pytest.mark.parametrize(("of_backward", "left"), [(0.25, 0.85), (0.5, 0.7), (0.6, 0.7)])
def test_only_the_gradients_of_parts_are_saved_and_no_more_than_the_line_has(of_backward: float, left: float) -> None:
    parts = LineWork((LineOperator("aten::select", 30, 1e4, 1e6, of_backward),), 30, 1e4, 0.9, 0.5)
    case = with_lines(spot(work=parts, backward_frac=0.3))
    (found,) = make.find(case, "hot_line")
    assert found.least_step_ns == pytest.approx(left * case.steps.mean_ns)


def test_rules_that_miss_something_for_one_reason_share_a_line() -> None:
    lacks = [
        {"rule": name, "missing": missing, "how": "Record more."} for name, missing in zip("abc", "xxy", strict=True)
    ]
    assert list(list_lacks(lacks)) == ["  a, b, c: missing: x; y. Record more."]


def test_parts_whose_times_are_all_zero_are_no_pattern() -> None:
    parts = LineWork((LineOperator("aten::select", 30, 0.0),), 30, 0.0, 0.9, 0.0)
    assert titles(spot(work=parts)) == ("mine() calls aten::select 30 times in each step",)


@pytest.mark.parametrize(
    "fields",
    [
        {"made_frac": 0.1},
        {"phases": {"forward": 0.4}, "calls": {"sklearn.roc_auc_score": 0.4}},
        {"phases": {"tail": 0.4}, "calls": {"sklearn.roc_auc_score": 0.1}},
        {"lines": (Line(7, 0.1, "rows = scores.tolist()"), Line(8, 0.3, "x = y"))},
        {"work": work(calls=3, mean_ns=5e4), "backward_frac": 0.1},
        {"course": course((1e6, 4e6, 3e6))},
        {"course": course(last_ns=5e6)},
        {"course": course(error_ns=1e9, asleep_frac=0.4)},
        {"course": course(error_ns=1e9)},
        {"work": work(), "phases": {"tail": 0.4}},
        {"work": work(operator_frac=0.1), "phases": {WORKERS: 0.4}},
        {"phases": {THREADS: 0.1, "tail": 0.3}},
        {"work": work(operator_frac=0.1), "course": course(error_ns=1e9, asleep_frac=0.9, threads=1.1)},
        {"work": work(operator_frac=0.1), "phases": {"backward": 0.4}},
    ],
)
def test_a_line_that_hardly_does_it_fits_no_pattern(fields: dict[str, Any]) -> None:
    (title,) = titles(spot(**fields))
    assert title.startswith("mine() takes ")


@pytest.mark.parametrize("doing", ["backward", "update", "loader"])
def test_a_line_of_every_training_is_not_worth_a_look(doing: str) -> None:
    assert titles(spot(0.9, doing, work=work(operator_frac=0.0))) == ()


def test_two_lines_are_listed_by_their_share_with_its_backward_and_a_pattern_counts_twice() -> None:
    small = spot(0.25, function="small", made_frac=0.25)
    large, larger = spot(0.3, function="large"), spot(0.2, function="larger", backward_frac=0.2)
    assert titles(large, larger, small) == (
        "small() makes something anew in each step",
        "larger() takes 40.0 % of the step",
    )


def test_the_forward_of_a_module_counts_half() -> None:
    model, made = spot(0.5, function="Net.forward"), spot(0.3, function="normalize")
    assert [title.split("(")[0] for title in titles(model, made)] == ["normalize", "Net.forward"]
    assert [title.split("(")[0] for title in titles(spot(0.7, function="Net.forward"), made)] == [
        "Net.forward",
        "normalize",
    ]


def test_a_line_that_another_suggestion_names_is_not_listed_again() -> None:
    case = with_lines(spot(function="W&B"), spot(function="fresh"), case=logging(0.4))
    said = [(entry.rule, entry.title) for entry in judge(case).suggestions]
    assert ("python_gap", "Logging holds up the steps: W&B") in said
    assert [title for rule, title in said if rule == "hot_line"] == ["fresh() takes 40.0 % of the step"]


def test_the_training_thread_that_waits_for_a_device_is_not_called_idle() -> None:
    waits = spot(course=course(error_ns=1e9, asleep_frac=0.9))
    (title,) = titles(waits, case=make.with_device(base(), busy=0.3))
    assert title.startswith("mine() takes ")


@pytest.mark.parametrize(
    ("threads", "mean_ns", "free", "speaks"),
    [(1.0, 1e6, 1.0, True), (2.0, 1e6, 1.0, False), (1.0, 1e5, 1.0, False), (1.0, 1e6, 0.0, False)],
)
def test_one_thread_is_a_fault_only_beside_free_processors_and_in_large_operators(
    threads: float, mean_ns: float, free: float, speaks: bool
) -> None:
    assert alone(threads, mean_ns, free) is speaks


@pytest.mark.parametrize(("backward", "same"), [(0.0, True), (0.1, False)])
def test_a_line_that_runs_its_own_backward_has_a_gradient(backward: float, same: bool) -> None:
    (title,) = titles(
        spot(phases={"forward": 0.4 - backward, "backward": backward / 2, "tail": backward / 2}, work=work())
    )
    assert ("may compute the same" in title) is same


@pytest.mark.parametrize(("torch_threads", "speaks"), [(None, False), (1, False), (2, True)])
def test_one_thread_for_all_of_torch_is_no_fault_of_a_line(torch_threads: int | None, speaks: bool) -> None:
    assert alone(torch_threads=torch_threads) is speaks


def test_a_line_on_one_thread_could_at_best_use_all_free_processors() -> None:
    case = make.with_load(base(), process=1.0, workers=0.0, others=0.0)
    case = replace(case, host=replace(case.host, cores=2.0))
    found = spot(work=work(), backward_frac=0.1, course=course(error_ns=1e9, asleep_frac=0.0, threads=1.0))
    (look,) = make.find(with_lines(found, case=case), "hot_line")
    assert look.least_step_ns == pytest.approx((1 - 0.5 / 2) * base().steps.mean_ns)


@pytest.mark.parametrize(("share", "said"), [(0.99, "it cost nothing, the step would take 640 µs"), (0.9999, "")])
def test_no_step_of_nothing_is_stated_for_a_line_that_takes_all_of_it(share: float, said: str) -> None:
    (look,) = make.find(with_lines(spot(share)), "hot_line")
    assert said in look.text.measured
    assert ("cost nothing" in look.text.measured) is bool(said)
    fields = {"least_step_ns": look.least_step_ns, "predicted_step_ns": None, "condition": ""}
    assert say_gain(fields).startswith("At best: 640 µs" if said else "No step time is predicted")


@pytest.mark.parametrize(
    ("fields", "usual", "quoted"),
    [
        ({"function": "Net.forward"}, True, True),
        ({"is_of_loop": True, "calls": {"torch.Sequential.forward": 0.4}}, True, False),
        ({"function": "Net.forward", "phases": {"tail": 0.4}}, False, True),
        ({}, False, True),
    ],
)
def test_a_look_at_the_forward_of_the_model_says_that_it_is_usual(
    fields: dict[str, Any], usual: bool, quoted: bool
) -> None:
    (look,) = make.find(with_lines(spot(**fields)), "hot_line")
    assert ("It is the model's own work." in look.text.measured) is usual
    assert ("Most of it is `x = mine(x)`." in look.text.measured) is quoted
    assert f"need this {'line' if fields.get('is_of_loop') else 'function'}?" in look.text.advice


@pytest.mark.parametrize(("grown_ms", "named"), [(20.0, True), (2.0, False)])
def test_a_drift_names_the_line_that_grows(grown_ms: float, named: bool, tmp_path: Path) -> None:
    case = measure(build_case_run(tmp_path / "run", PLANTED["drift"]))
    times = (1e6, 1e6 + grown_ms * 5e5, 1e6 + grown_ms * 1e6)
    case = with_lines(spot(course=course(times)), case=case)
    assert ("mine()" in make.find(case, "drift").text.title) is named


@pytest.mark.parametrize(("others", "rest_ns", "grows"), [(0.0, 21e6, True), (1.9, 21e6, False), (1.9, 7e6, True)])
def test_on_a_busy_host_a_line_grows_only_beside_the_rest_of_the_step(
    others: float, rest_ns: float, grows: bool
) -> None:
    case = make.with_load(base(), others=others)
    (title,) = titles(spot(course=course(last_ns=rest_ns)), case=case)
    assert ("longer with every" in title) is grows


@pytest.mark.parametrize(("frac", "named"), [(0.3, ["mine", "feed"]), (0.5, ["mine"])])
def test_a_line_that_waits_for_threads_is_named_only_where_it_takes_more_than_their_lines(
    frac: float, named: list[str]
) -> None:
    waits = spot(0.4, function="feed", course=course(error_ns=1e9, asleep_frac=0.9, threads=1.1))
    found = titles(waits, spot(frac, phases={THREADS: frac}))
    assert sorted(
        title.replace("The step waits while other threads run ", "").split("(")[0] for title in found
    ) == sorted(named)


@pytest.mark.parametrize(("python_threads", "waits"), [(0.1, True), (0.5, False)])
def test_a_thread_that_waits_for_another_of_python_is_not_called_idle(python_threads: float, waits: bool) -> None:
    case = make.with_load(base(), python_threads=python_threads)
    (title,) = titles(spot(course=course(error_ns=1e9, asleep_frac=0.9)), case=case)
    assert ("computes nothing" in title) is waits
