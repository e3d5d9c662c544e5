"""A line is named by the kind of work that was seen of it, and a healthy loop has at most two."""

from __future__ import annotations

from typing import Any

import pytest

from profiler_server.diagnosis.judging import judge
from profiler_server.facts.case import WORKERS, Hotspot, Line, LineOperator, LineWork
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.lines import EMBEDDING, spot, titles, with_lines, work
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
        (spot(0.1, work=EMBEDDING, backward_frac=0.5), "mine() looks up few rows and gets a gradient of all"),
        (spot(work=work()), "mine() may compute the same in each step"),
        (spot(work=work(operator_frac=0.1)), "mine() is Python, not operators"),
        (spot(is_of_loop=True), "train.py:41 takes 40.0 % of the step"),
    ],
)
def test_a_pattern_names_the_line(found: Hotspot, title: str) -> None:
    assert titles(found) == (title,)


@pytest.mark.parametrize(
    "fields",
    [
        {"made_frac": 0.1},
        {"phases": {"forward": 0.4}, "calls": {"sklearn.roc_auc_score": 0.4}},
        {"phases": {"tail": 0.4}, "calls": {"sklearn.roc_auc_score": 0.1}},
        {"lines": (Line(7, 0.1, "rows = scores.tolist()"), Line(8, 0.3, "x = y"))},
        {"work": work(calls=3, mean_ns=5e4), "backward_frac": 0.1},
        {"work": work(), "phases": {"tail": 0.4}},
        {"work": work(operator_frac=0.1), "phases": {WORKERS: 0.4}},
        {"work": work(operator_frac=0.1), "phases": {"backward": 0.4}},
    ],
)
def test_a_line_that_hardly_does_it_fits_no_pattern(fields: dict[str, Any]) -> None:
    (title,) = titles(spot(**fields))
    assert title.startswith("mine() takes ")


@pytest.mark.parametrize("doing", ["backward", "update", "loader"])
def test_a_line_of_every_training_is_not_worth_a_look(doing: str) -> None:
    assert titles(spot(0.9, doing, work=work(operator_frac=0.0))) == ()


def test_two_lines_are_listed_patterns_first_and_then_the_largest_with_its_backward() -> None:
    small = spot(0.1, function="small", made_frac=0.1)
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


@pytest.mark.parametrize(("backward", "speaks"), [(0.0, True), (0.05, True), (0.3, False)])
def test_a_forward_without_a_module_is_not_time_outside_of_training(backward: float, speaks: bool) -> None:
    case = make.split_step(base(), gap=0.2)
    case = make.with_steps(case, phases_ns={**case.steps.phases_ns, "gap": 0.2 * case.steps.mean_ns})
    case = with_lines(spot(0.2, phases={"gap": 0.2}, backward_frac=backward), case=case)
    assert make.speaks(case, "python_gap") is speaks
