"""Loops that fetch several batches and then train on them, or use some of them more than once."""

from __future__ import annotations

import itertools

import torch

from tests.support.shapes import Gan, Net, loader, loss_of, sgd, train_on


def batches_fetched_before_they_are_used() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(5):
        for x, y in [next(batches) for _ in range(4)]:
            (loss_of(model(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()


def a_step_for_each_batch_of_a_group() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(4):
        train_on(model, optimizer, [next(batches) for _ in range(5)])


def groups_to_the_end_of_each_epoch() -> None:
    model = Net()
    optimizer, batches = sgd(model), loader(num_workers=1, persistent_workers=True)
    for _ in range(2):
        iterator = iter(batches)
        while group := list(itertools.islice(iterator, 4)):
            train_on(model, optimizer, group)


def gan_in_groups() -> None:
    pair, batches = Gan(), iter(loader(320))
    for _ in range(5):
        for x, _ in [next(batches) for _ in range(4)]:
            pair.train(x)


def lbfgs_in_groups() -> None:
    model = Net()
    optimizer, batches = torch.optim.LBFGS(model.parameters(), max_iter=3), iter(loader())
    for _ in range(5):
        for x, y in [next(batches), next(batches)]:

            def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)


def two_updates_for_each_group() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(5):
        for index, (x, y) in enumerate([next(batches) for _ in range(4)]):
            loss_of(model(x), y).backward()
            if index % 2:
                optimizer.step()
                optimizer.zero_grad()


def several_updates_on_each_batch() -> None:
    model = Net()
    optimizer = sgd(model)
    for x, y in loader():
        train_on(model, optimizer, [(x, y)] * 3)


def batches_that_are_skipped() -> None:
    model = Net()
    optimizer = sgd(model)
    for index, batch in enumerate(loader(320)):
        if index % 4 == 3:
            train_on(model, optimizer, [batch])
