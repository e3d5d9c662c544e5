"""A training that reads gradients, in a module of its own: the functions of a script are searched for such reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def operate(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[int], None]:
    """The gradients of two tasks are read and joined by hand."""

    def step(at: int) -> None:
        read = []
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            read.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        for parameter, *parts in zip(model.parameters(), *read, strict=True):
            parameter.grad = torch.stack(parts).sum(0)
        optimizer.step()

    return step


def penalize() -> Any:
    return torch.autograd.grad(torch.ones(1), torch.ones(1))


def update_the_rest(model: nn.Module, _: torch.optim.Optimizer) -> Callable[[int], None]:
    """One parameter has an optimizer, and the other one is updated by hand."""
    optimizer = torch.optim.SGD([model.weight], 0.1)

    def step(at: int) -> None:
        model.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model.bias.sub_(0.1 * model.bias.grad)

    return step


def make_sampler(reads_sample: bool) -> Callable[[int], None]:
    """Move samples along the gradient of an energy, or clamp the gradients of its weights, before it is trained."""
    first, last = nn.Linear(8, 32), nn.Linear(32, 1)
    energy = nn.Sequential(first, nn.Tanh(), last)
    optimizer = torch.optim.SGD(energy.parameters(), 0.01)

    def step(at: int) -> None:
        sample = torch.randn(16, 8).requires_grad_(reads_sample)
        for _ in range(4):
            energy(sample).sum().backward()
            gradient = sample.grad if reads_sample else first.weight.grad
            assert gradient is not None
            if reads_sample:
                sample.data.sub_(gradient)
                sample.grad = None
            else:
                gradient.clamp_(-1, 1)
        optimizer.zero_grad()
        energy(sample.detach()).mean().backward()
        optimizer.step()

    return step
