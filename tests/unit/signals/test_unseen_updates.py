"""Loops whose updates no hook sees, and loops that only infer: their steps and batches are found, or the run says how."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import collector
from collector.notebook.run import Run
from tests.support import forking, shapes
from tests.support.recording import Recorded, assert_sound, record
from tests.support.shapes import compiled, held_out

COUNT = 20
Train = Callable[[Any], None]


def generate(count: int = COUNT) -> Iterator[Any]:
    for _ in range(count):
        yield torch.randn(16, 16), torch.randint(0, 4, (16,))


def load(count: int = COUNT) -> Any:
    return shapes.loader(count * shapes.BATCH)


def compiled_update(batches: Any) -> None:
    model = shapes.Net()
    optimizer = torch.optim.Adam(model.parameters())

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator]
    def update() -> None:
        optimizer.step()

    for x, y in batches:
        optimizer.zero_grad()
        shapes.loss_of(model(x), y).backward()
        update()


def compiled_step(batches: Any) -> None:
    step = compiled.compile_step()
    for x, y in batches:
        step(x, y)


def by_hand(batches: Any) -> None:
    model = shapes.Net()
    for x, y in batches:
        shapes.loss_of(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None


def functional(batches: Any) -> None:
    model = shapes.Net()
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        return shapes.loss_of(torch.func.functional_call(model, parameters, (x,)), y)

    for x, y in batches:
        gradients: Any = torch.func.grad(loss)(parameters, x, y)
        parameters = {name: value - 0.1 * gradients[name] for name, value in parameters.items()}


def without_modules(batches: Any) -> None:
    weight = torch.zeros(16, 4, requires_grad=True)
    for x, y in batches:
        shapes.loss_of(x @ weight, y).backward()
        weight.grad = None


def codes_of(recorded: Recorded) -> set[str]:
    return {warning.code for warning in recorded.run.rank().manifest.warnings}


# Dynamo imports modules of torch that warn of their own deprecation.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("train", "batches"),
    [
        *((train, generate) for train in (compiled_update, functional, without_modules, by_hand)),
        *((train, load) for train in (compiled_step, by_hand, without_modules)),
    ],
)
def test_steps_are_found_by_their_rhythm(tmp_path: Path, train: Train, batches: Callable[[], Any]) -> None:
    recorded = record(tmp_path, lambda: train(batches()))
    assert_sound(recorded)
    assert recorded.kinds == {"train": COUNT}
    assert recorded.count("backwards") == [1] * COUNT
    assert "updates_unseen" in codes_of(recorded)


def test_a_window_opens_once_it_is_clear_that_updates_are_not_seen(tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: by_hand(generate(100)), window=(10, 2))
    assert_sound(recorded)
    assert len(recorded.train) == 100
    (window,) = recorded.run.rank().manifest.windows
    operators = recorded.run.table("operators").to_pylist()
    assert window.last_step == window.first_step + 1
    assert {row["step"] for row in operators} == {window.first_step, window.last_step}


def test_updates_that_are_seen_again_end_the_steps(tmp_path: Path) -> None:
    def loop() -> None:
        by_hand(generate(80))
        model = shapes.Net()
        shapes.train_on(model, shapes.sgd(model), list(generate(30)))

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert len(recorded.train) == pytest.approx(110, abs=2)
    assert recorded.count("optimizer_steps")[-20:] == [1] * 20


def test_many_micro_batches_of_a_loop_without_loader_stay_one_step(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        optimizer = shapes.sgd(model)
        for at, (x, y) in enumerate(generate(120)):
            shapes.loss_of(model(x), y).backward()
            if at % 40 == 39:
                optimizer.step()
                optimizer.zero_grad()

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.count("backwards") == [40] * 3
    assert "updates_unseen" not in codes_of(recorded)


def infer(count: int = COUNT, gradients: bool = False) -> None:
    model = shapes.Net()
    with torch.set_grad_enabled(gradients):
        for _ in range(count):
            model(torch.randn(16, 16))


def infer_with_two_models() -> None:
    find, name = shapes.Net(), nn.Linear(4, 2)
    with torch.no_grad():
        for _ in range(COUNT):
            name(find(torch.randn(16, 16)))


@pytest.mark.parametrize("loop", [lambda: infer(3), lambda: infer(600, gradients=True), infer_with_two_models])
def test_calls_of_a_model_are_batches_where_nothing_trains(tmp_path: Path, loop: Callable[[], None]) -> None:
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    forwards = sum(row["forwards"] for row in recorded.rows)
    batches = recorded.kinds["eval"]
    assert batches == (COUNT if loop is infer_with_two_models else forwards)
    assert codes_of(recorded) == set()


def test_a_training_that_infers_first_keeps_its_steps(tmp_path: Path) -> None:
    def loop() -> None:
        infer(10)
        held_out.without_loader_with_a_teacher()

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 10, "eval": 10}


def mark_by_record() -> None:
    model = shapes.Net()
    with torch.no_grad():
        for _ in range(COUNT):
            with collector.record("inference"):
                model(torch.randn(16, 16))
                model(torch.randn(16, 16))


def mark_by_number() -> None:
    for number in range(COUNT):
        collector.push_range("batch", batch_idx=number)
        with collector.record("inference"):
            np.ones(100).sum()
        collector.pop_range(total_items=16)


@pytest.mark.parametrize("loop", [mark_by_record, mark_by_number])
def test_marked_batches_are_the_batches_of_an_inference(
    tmp_path: Path, loop: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"eval": COUNT}
    assert [row["markers"] for row in recorded.rows if row["kind"] == "eval"] == [True] * COUNT
    assert codes_of(recorded) == set()
    recorded.run.print_each_step()
    assert len(capsys.readouterr().out.splitlines()) >= COUNT


def take_away(number: int) -> None:
    """The ways to say that a batch is none."""
    if number % 4 == 0:
        collector.pop_range(delete_range=True)
    elif number % 4 == 1:
        collector.pop_range(total_items=0)
    else:
        collector.pop_range(total_items=16)


def mark_and_take_away() -> None:
    model = shapes.Net()
    for number in range(COUNT):
        collector.push_range("batch", batch_idx=number)
        with collector.record("inference"), torch.no_grad():
            model(torch.randn(16, 16))
        take_away(number)


def take_away_of_a_loader() -> None:
    model = shapes.Net()
    batches = iter(shapes.loader(COUNT * shapes.BATCH))
    for number in range(COUNT + 1):
        collector.push_range("batch", batch_idx=number)
        try:
            x, _ = next(batches)
        except StopIteration:
            collector.pop_range(total_items=0, delete_range=True)
            return
        with torch.no_grad():
            model(x)
        take_away(number)


@pytest.mark.parametrize("loop", [mark_and_take_away, take_away_of_a_loader])
def test_a_batch_that_was_taken_away_is_in_no_figure(tmp_path: Path, loop: Callable[[], None]) -> None:
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    kept = [number for number in range(COUNT) if number % 4 > 1]
    assert recorded.kinds == {"eval": len(kept)}
    counted = sum(row["samples"] or 0 for row in recorded.rows)
    assert counted == (0 if loop is mark_and_take_away else len(kept) * shapes.BATCH)


def test_ranges_around_training_steps_change_no_step_whether_they_count_or_not(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        optimizer = shapes.sgd(model)
        for number, batch in enumerate(generate()):
            collector.push_range("batch", batch_idx=number)
            shapes.train_on(model, optimizer, [batch])
            take_away(number)

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": COUNT}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("pass", "No training step was found: call profiler.step() after each step."),
        ("with torch.no_grad():\n    for _ in range(25): model(torch.ones(1, 2))", "recorded 25 calls"),
        ("for _ in range(25): model(torch.ones(1, 2)).sum().backward()", "recorded 25 steps"),
    ],
)
def test_stderr_and_the_run_tell_the_same(tmp_path: Path, lines: str, said: str) -> None:
    script = (
        "import torch, collector\nprofiler = collector.Profiler('run', window=None)\nmodel = torch.nn.Linear(2, 2)\n"
    )
    script += textwrap.dedent(lines) + "\nprofiler.analyse()\n"
    done = forking.run([sys.executable, "-c", script], cwd=tmp_path)
    assert done.returncode == 0
    assert said in done.stderr
    rank = Run(tmp_path / "run").rank()
    number = int(said.split()[1]) if said.startswith("recorded") else 0
    assert rank.count_steps() + rank.count_steps("eval") == number
    assert (said in " ".join(warning.text for warning in rank.manifest.warnings)) is (number == 0)
