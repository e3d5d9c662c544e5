"""Training loops of every shape, each small enough for a test: what people write, not what a profiler would like."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16


loss_of = nn.CrossEntropyLoss()


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


def samples(count: int = 160) -> TensorDataset:
    return TensorDataset(torch.randn(count, 16), torch.randint(0, 4, (count,)))


def loader(count: int = 160, **options: Any) -> DataLoader[Any]:
    return DataLoader(samples(count), BATCH, **options)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train_on(model: Any, optimizer: torch.optim.Optimizer, batches: Any) -> None:
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()


def plain() -> None:
    model = Net()
    train_on(model, sgd(model), loader())


class Gan:
    def __init__(self) -> None:
        self.maker, self.judge, self.head = Net(), Net(), nn.Linear(4, 16)
        self.maker_optimizer = torch.optim.Adam(self.maker.parameters())
        self.judge_optimizer = torch.optim.Adam(self.judge.parameters())

    def train(self, x: torch.Tensor) -> None:
        self.judge_optimizer.zero_grad()
        made = self.head(self.maker(torch.randn(BATCH, 16)))
        (self.judge(x).mean() - self.judge(made.detach()).mean()).backward()
        self.judge_optimizer.step()
        self.maker_optimizer.zero_grad()
        self.judge(made).mean().backward()
        self.maker_optimizer.step()
