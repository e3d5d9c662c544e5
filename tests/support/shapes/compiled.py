"""Loops whose model or whole step is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.support.shapes import BATCH, Net, loader, loss_of, sgd, train_on


def compiled_model() -> None:
    model = Net()
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = sgd(model)
    for _ in range(2):
        train_on(compiled, optimizer, loader())
        with torch.no_grad():
            for x, _ in loader(32):
                compiled(x)


def compiled_in_place() -> None:
    model = Net()
    model.compile(backend="eager")
    train_on(model, sgd(model), loader())


def compile_step() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return a whole step of a new model as one compiled function."""
    model = Net()
    optimizer = sgd(model)

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator]
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        loss_of(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step  # type: ignore[no-any-return]


def compiled_step() -> None:
    step = compile_step()
    for x, y in loader():
        step(x, y)


def trained_then_compiled() -> None:
    model = Net()
    optimizer = sgd(model)
    train_on(model, optimizer, loader())
    train_on(torch.compile(model, backend="eager"), optimizer, loader())


def compiled_step_for_long() -> None:
    step = compile_step()
    for _ in range(3):
        for x, y in loader(30 * BATCH):
            step(x, y)
