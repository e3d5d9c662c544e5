"""Parameters that get gradients and that no optimizer updates are found, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from collector.context.signals import SETTLED_STEP
from collector.signals.model import find_unused
from tests.support.recording import record

pytestmark = pytest.mark.usefixtures("one_thread")


def give_gradients(*models: nn.Module) -> list[nn.Parameter]:
    parameters = [parameter for model in models for parameter in model.parameters()]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


def test_gradients_that_no_optimizer_takes_are_counted() -> None:
    student, teacher = nn.Linear(4, 2), nn.Linear(8, 2)
    parameters = give_gradients(student, teacher)
    found = find_unused(parameters, [torch.optim.SGD(student.parameters(), 0.1)])
    assert found == {"parameters": 18, "tensors": 2, "updated": 10}


def test_what_is_frozen_or_has_no_gradient_is_not_counted() -> None:
    student, frozen, idle = nn.Linear(4, 2), nn.Linear(8, 2).requires_grad_(False), nn.Linear(8, 2)
    parameters = [*give_gradients(student), *frozen.parameters(), *idle.parameters()]
    assert find_unused(parameters, [torch.optim.SGD(student.parameters(), 0.1)]) is None


def test_several_optimizers_take_the_gradients_of_all_that_they_hold() -> None:
    forger, critic = nn.Linear(4, 2), nn.Linear(8, 2)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (forger, critic)]
    assert find_unused(give_gradients(forger, critic), optimizers) is None


@pytest.mark.parametrize("kept", [0, 1])
def test_copies_in_the_optimizer_say_nothing_of_the_model(kept: int) -> None:
    """Mixed precision with copies of the weights in float32, of all or of all but some."""
    model, norm = nn.Linear(4, 2).half(), nn.LayerNorm(2)
    copies = [parameter.detach().float() for parameter in model.parameters()]
    optimizer = torch.optim.SGD([*copies, *(norm.parameters() if kept else ())], 0.1)
    assert find_unused(give_gradients(model, norm) if kept else give_gradients(model), [optimizer]) is None


@pytest.mark.parametrize("without", [False, True])
def test_a_teacher_that_records_gradients_is_noted(without: bool, tmp_path: Path) -> None:
    def train() -> None:
        teacher, student = nn.Linear(8, 4), nn.Linear(8, 4)
        optimizer = torch.optim.SGD(student.parameters(), 0.1)
        for _ in range(SETTLED_STEP + 3):
            batch = torch.randn(4, 8)
            with torch.set_grad_enabled(not without):
                target = teacher(batch)
            loss = nn.functional.mse_loss(student(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    recorded = record(tmp_path, train)
    found = recorded.run.rank(0).manifest.facts.get("unused_gradients")
    assert found == (None if without else {"parameters": 36, "tensors": 2, "updated": 36})
