"""Loops with an update of their own: accumulation, scaling, closures, several optimizers, gradients of gradients."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.support.shapes import Gan, Net, loader, loss_of, sgd


def accumulation_with_a_rest() -> None:
    model = Net()
    optimizer = sgd(model)
    for i, (x, y) in enumerate(loader()):
        loss_of(model(x), y).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def accumulation_by_hand() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(5):
        for _ in range(4):
            x, y = next(batches)
            (loss_of(model(x), y) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def scaler_with_an_infinite_gradient() -> None:
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    for i, (x, y) in enumerate(loader()):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(x), y)
        if i == 5:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


def gan() -> None:
    pair = Gan()
    for x, _ in loader():
        pair.train(x)


def lbfgs_with_closure() -> None:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in loader():

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = loss_of(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def checkpointed() -> None:
    model = Net()
    optimizer = sgd(model)
    for x, y in loader():
        optimizer.zero_grad()
        x.requires_grad_()
        loss_of(checkpoint(model, x, use_reentrant=False), y).backward()
        optimizer.step()


def optimizer_in_backward() -> None:
    model = Net()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for x, y in loader():
        loss_of(model(x), y).backward()


def gradient_penalty() -> None:
    model = Net()
    optimizer = sgd(model)
    for x, _ in loader():
        x.requires_grad_()
        out = model(x).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        optimizer.zero_grad()
        (gradient.norm() + out).backward()
        optimizer.step()
