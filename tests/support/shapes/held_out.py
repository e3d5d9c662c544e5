"""Loops that also infer: validation between the steps or after them, a teacher, another model."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from tests.support.shapes import BATCH, Net, loader, loss_of, sgd, train_on


def validate(model: nn.Module, batches: Any) -> None:
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            loss_of(model(x), y)
    model.train()


def validation_inside_and_after() -> None:
    model = Net()
    optimizer, batches, held_out = sgd(model), loader(), loader(64)
    for _ in range(2):
        for i, (x, y) in enumerate(batches):
            train_on(model, optimizer, [(x, y)])
            if i == 4:
                validate(model, held_out)
        validate(model, held_out)


def validation_that_stops_early() -> None:
    model = Net()
    optimizer, held_out = sgd(model), loader(64)
    for i, (x, y) in enumerate(loader()):
        train_on(model, optimizer, [(x, y)])
        if i == 4:
            with torch.no_grad():
                for j, (u, _) in enumerate(held_out):
                    model(u)
                    if j == 1:
                        break


def inference_before_training() -> None:
    model = Net()
    with torch.inference_mode():
        for x, _ in loader(64):
            model(x)
    train_on(model, sgd(model), loader())


def without_loader_with_validation() -> None:
    model = Net()
    optimizer = sgd(model)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        if step % 5 == 4:
            with torch.no_grad():
                for _ in range(3):
                    model(torch.randn(8, 16))


def without_loader_with_a_teacher() -> None:
    model, teacher = Net(), Net()
    optimizer = sgd(model)
    for _ in range(10):
        x = torch.randn(8, 16)
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        (model(x) - wanted).square().mean().backward()
        optimizer.step()


def acting_in_a_world() -> None:
    """The world takes 5 ms to answer what the model says, and the training has no other input."""
    model = Net()
    optimizer = sgd(model)
    states = torch.randn(8, 16)
    for _ in range(10):
        with torch.no_grad():
            moves = model(states)
        time.sleep(0.005)
        loss = (model(states) - moves).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Critic(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result


def another_model_comes_late() -> None:
    model, critic = Net(), Critic()
    train_on(model, sgd(model), loader())
    with torch.no_grad():
        for x, _ in loader(30 * BATCH):
            critic(x)
