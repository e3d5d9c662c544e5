"""Loops that fetch in a way of their own: workers, threads, streams, several loaders, broken off."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.support.shapes import Net, loader, loss_of, plain, sgd, train_on


class Stream(IterableDataset[Any]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        for _ in range(40):
            yield torch.randn(16), 1


def workers_persistent_two_epochs() -> None:
    model = Net()
    optimizer, batches = sgd(model), loader(num_workers=2, persistent_workers=True)
    for _ in range(2):
        train_on(model, optimizer, batches)


def two_loaders_zipped() -> None:
    model = Net()
    optimizer = sgd(model)
    for (x, y), (u, _) in zip(loader(), loader(), strict=True):
        optimizer.zero_grad()
        (loss_of(model(x), y) + model(u).mean()).backward()
        optimizer.step()


def iterable_with_workers() -> None:
    model = Net()
    train_on(model, sgd(model), DataLoader(Stream(), 8, num_workers=2))


def loader_in_another_thread() -> None:
    model = Net()
    optimizer, batches = sgd(model), queue.Queue[Any](2)

    def feed() -> None:
        for batch in loader():
            batches.put(batch)
        batches.put(None)

    thread = threading.Thread(target=feed)
    thread.start()
    while (batch := batches.get()) is not None:
        train_on(model, optimizer, [batch])
    thread.join()


def one_batch_ahead() -> None:
    def ahead(batches: Any) -> Iterator[Any]:
        iterator = iter(batches)
        current = next(iterator)
        for following in iterator:
            yield current
            current = following
        yield current

    model = Net()
    train_on(model, sgd(model), ahead(loader()))


def broken_off_and_failed() -> None:
    model = Net()
    optimizer, batches = sgd(model), loader(num_workers=1)
    for i, batch in enumerate(batches):
        if i == 5:
            break
        train_on(model, optimizer, [batch])
    try:
        for i, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            if i == 3:
                model(torch.randn(3, 3))
            loss.backward()
            optimizer.step()
    except RuntimeError:
        pass
    train_on(model, optimizer, batches)


def in_another_thread() -> None:
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


def workers_out_of_order() -> None:
    model = Net()
    train_on(model, sgd(model), loader(num_workers=2, in_order=False))
