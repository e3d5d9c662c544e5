"""What becomes of gradients: which of them no update uses, and which nodes of backward computed nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from collector.context.signals import SETTLED_STEP
from collector.format.schema.layout import events_path, rank_path
from collector.notes import WORDS_FILE
from collector.ring.windows import Order, send_order
from collector.signals import gradients
from profiler_server.analysis.recorded_facts import read_repeated_nodes, read_unused_gradients
from profiler_server.analysis.stacks.line_work import read_repeated_time, read_unused_share
from profiler_server.facts.steps import UnusedGradients
from tests.support import surgery
from tests.support.recording import Recorded, record

STEPS = SETTLED_STEP + 6


def read(recorded: Recorded) -> dict[str, Any] | None:
    assert not [entry for entry in recorded.run.rank().manifest.signals if entry.state == "failed"]
    found: dict[str, Any] | None = recorded.run.rank().manifest.facts.get("unused_gradients")
    return found


def train(path: Path, step: Callable[[int], object], **options: Any) -> Recorded:
    def loop() -> None:
        for at in range(STEPS):
            step(at)

    return record(path, loop, **options)


def make_pair(detach: bool = False, freeze: bool = False) -> Callable[[int], None]:
    """A large forger and a small critic, as scripts of two models train them."""
    forger = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
    critic = nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in (forger, critic)]

    def step(at: int) -> None:
        made = forger(torch.randn(64, 8))
        optimizers[1].zero_grad()
        critic(made.detach() if detach else made).mean().backward(retain_graph=True)
        optimizers[1].step()
        optimizers[0].zero_grad()
        critic.requires_grad_(not freeze)
        critic(made).mean().neg().backward()
        critic.requires_grad_(True)
        optimizers[0].step()

    return step


def count_whole(found: UnusedGradients) -> int:
    return sum(last - first + 1 for first, last, _, kind in found.nodes if kind == 2)


def test_a_backward_through_the_other_model_is_seen_with_its_nodes(tmp_path: Path) -> None:
    recorded = train(tmp_path, make_pair(), window=(10, 3))
    found = read_unused_gradients(recorded.run.rank().manifest.facts)
    assert found is not None
    assert found.parameters == found.held == found.updated > 9
    assert count_whole(found) >= 3 * 8  # three layers, each a product and a transposition, and two activations
    share = read_unused_share(recorded.run.rank(), found)
    assert share is not None
    assert 0.0 < share < 1.0


def test_only_the_weights_of_the_critic_are_left_where_the_forger_is_detached(tmp_path: Path) -> None:
    found = read_unused_gradients(train(tmp_path, make_pair(detach=True), window=(10, 3)).run.rank().manifest.facts)
    assert found is not None
    assert found.parameters == found.held == 9
    assert 0 < count_whole(found) < 3 * 8
    assert any(kind == 1 for *_, kind in found.nodes)


@pytest.mark.parametrize("again", [False, True])
def test_what_each_turn_of_a_loop_computes_again_is_seen_with_its_time(again: bool, tmp_path: Path) -> None:
    form, memory = nn.Linear(64, 64), torch.randn(200, 64)
    optimizer = torch.optim.SGD(form.parameters(), 0.01)

    def step(at: int) -> None:
        state, keys = torch.zeros(64), form(memory)
        for _ in range(8):
            state = state + (form(memory) if again else keys).tanh().mean(0)
        optimizer.zero_grad()
        state.sum().backward()
        optimizer.step()

    rank = train(tmp_path, step, window=(10, 3)).run.rank()
    found = read_repeated_nodes(rank.manifest.facts)
    assert found is not None
    assert found.step == 10
    ranges = sum(last - first + 1 for first, last, _, kind in found.nodes if kind == 2)
    assert ranges >= 7 * (3 if again else 2), "tanh and mean, and the product before them"
    time_ns = read_repeated_time(rank, found)
    assert time_ns is not None
    assert 0.0 < time_ns < 1e9


@pytest.mark.parametrize("reads", ["sample", "weight"])
def test_gradients_of_weights_are_thrown_away_where_only_those_of_samples_are_read(reads: str, tmp_path: Path) -> None:
    step = surgery.make_sampler(reads == "sample")
    found = read(train(tmp_path, step, window=(10, 3)))
    assert (found is not None) == (reads == "sample")


def test_a_later_window_is_looked_at_too(tmp_path: Path) -> None:
    """A teacher is trained first; only then a student learns from it."""
    teacher, student = nn.Linear(8, 4), nn.Linear(8, 4)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (student, teacher)]

    def step(at: int) -> None:
        if at == 10:
            send_order(events_path(rank_path(tmp_path, 0)) / WORDS_FILE, Order(14, 4))
            optimizers.pop()
        model, optimizer = (teacher if at < 10 else student), optimizers[-1]
        batch = torch.randn(4, 8)
        loss = mse_loss(model(batch), teacher(batch) if at >= 10 else torch.zeros(4, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def loop() -> None:
        for at in range(30):
            step(at)

    rank = record(tmp_path, loop, window=(3, 3)).run.rank()
    assert [window.first_step for window in rank.manifest.windows] == [3, 14]
    assert read_unused_gradients(rank.manifest.facts) is not None
    assert rank.manifest.facts["unused_gradients"]["step"] == 14


def test_where_every_gradient_is_used_nothing_is_noted(tmp_path: Path) -> None:
    assert read(train(tmp_path, make_pair(detach=True, freeze=True), window=(10, 3))) is None


@pytest.mark.parametrize("without", [False, True])
def test_a_teacher_that_records_gradients_is_noted(without: bool, tmp_path: Path) -> None:
    teacher, student = nn.Linear(8, 4), nn.Linear(8, 4)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)

    def step(at: int) -> None:
        batch = torch.randn(4, 8)
        with torch.set_grad_enabled(not without):
            target = teacher(batch)
        loss = mse_loss(student(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    found = read(train(tmp_path, step))
    if without:
        assert found is None
    else:
        assert found is not None
        assert {name: found[name] for name in ("parameters", "tensors", "updated", "held")} == {
            "parameters": 36,
            "tensors": 2,
            "updated": 36,
            "held": 0,
        }


@pytest.mark.parametrize("clear", [False, True])
def test_a_teacher_that_follows_its_student_needs_no_gradients(clear: bool, tmp_path: Path) -> None:
    both = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])
    student, teacher = both
    optimizer = torch.optim.SGD(student.parameters(), 0.1)

    def step(at: int) -> None:
        batch = torch.randn(4, 8)
        loss = mse_loss(student(batch), teacher(batch))
        (both if clear else optimizer).zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.1)

    found = read(train(tmp_path, step))
    assert found is not None
    assert (found["parameters"], found["held"]) == (36, 0)


def take_a_part(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[int], None]:
    """Only every fourth backward is followed by an update: gradients are summed."""

    def step(at: int) -> None:
        for _ in range(4):
            model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ascend_first(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[int], None]:
    """The first gradients change the parameters by hand, as in sharpness-aware minimization."""

    def step(at: int) -> None:
        model(torch.randn(4, 8)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def close_in(model: nn.Module, _: torch.optim.Optimizer) -> Callable[[int], None]:
    """An optimizer that calls for gradients itself, and clears them in between."""
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss

    return lambda at: optimizer.step(closure)


@pytest.mark.parametrize("kind", [take_a_part, ascend_first, surgery.operate, surgery.update_the_rest, close_in])
def test_gradients_that_something_uses_are_not_thrown_away(kind: Callable[..., Any], tmp_path: Path) -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert read(train(tmp_path, kind(model, optimizer))) is None


@pytest.mark.parametrize("clear", ["optimizer", "model", "hand"])
def test_gradients_that_are_cleared_in_any_way_are_noted(clear: str, tmp_path: Path) -> None:
    """An attack on the input fills the gradients of the weights, too."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(at: int) -> None:
        batch = torch.randn(4, 8, requires_grad=True)
        model(batch).sum().backward()
        if clear == "hand":
            for parameter in model.parameters():
                parameter.grad = None
        else:
            (optimizer if clear == "optimizer" else model).zero_grad()
        model(batch.detach()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = read(train(tmp_path, step))
    assert found is not None
    assert found["held"] == found["parameters"] == 36


def test_copies_in_the_optimizer_say_nothing_of_the_model(tmp_path: Path) -> None:
    """Mixed precision with copies of the weights in float32."""
    model = nn.Linear(8, 4).to(torch.bfloat16)
    copies = [parameter.detach().float() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(copies, 0.1)

    def step(at: int) -> None:
        model(torch.randn(4, 8, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()

    assert read(train(tmp_path, step)) is None


@pytest.mark.parametrize("most", ["MOST_NODES", "MOST_NODES_IN_ALL"])
def test_a_graph_that_is_too_large_is_not_judged(most: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gradients, most, 3)
    assert read(train(tmp_path, make_pair())) is None


def test_calls_of_a_function_grad_read_no_gradient() -> None:
    assert not gradients.reads_gradients(surgery.penalize.__code__)
    assert gradients.reads_gradients(surgery.operate.__code__)
