"""Loops without a DataLoader, or over a batch that is used again."""

from __future__ import annotations

import torch

from tests.support.shapes import BATCH, Gan, Net, loader, sgd, train_on


def gan_without_loader() -> None:
    pair = Gan()
    for _ in range(10):
        pair.train(torch.randn(BATCH, 16))


def without_loader() -> None:
    model = Net()
    optimizer = sgd(model)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()


def one_batch_over_and_over() -> None:
    model = Net()
    x, y = next(iter(loader()))
    train_on(model, sgd(model), [(x, y)] * 100)


def one_batch_a_few_times() -> None:
    model = Net()
    x, y = next(iter(loader()))
    train_on(model, sgd(model), [(x, y)] * 12)


def gan_on_one_batch() -> None:
    pair = Gan()
    x, _ = next(iter(loader()))
    for _ in range(50):
        pair.train(x)


def loader_read_before_training() -> None:
    model, batches = Net(), loader()
    for _ in batches:
        pass
    train_on(model, sgd(model), batches)
