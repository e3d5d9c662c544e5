"""A warning names the line that it names without a recording, whatever its `stacklevel`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.support.recording import record


def warn(what: str, deepest: int = 4) -> None:
    for level in range(2, deepest + 1):
        warnings.warn(f"{what} {level}", stacklevel=level + 1)


class Items(Dataset[Any]):  # type: ignore[misc]
    def __init__(self) -> None:
        self.transform = self.turn

    def __len__(self) -> int:
        return 16

    def turn(self, index: int) -> Any:
        warn("transform")
        return torch.ones(4) * index

    def __getitem__(self, index: int) -> Any:
        warn("item", 3)
        return self.transform(index)


class Warns(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        warn("backward")
        return gradient


def collate(samples: list[Any]) -> Any:
    warn("collate", 3)
    return torch.stack(samples)


def close() -> None:
    warn("closure")


def train(steps: int) -> list[tuple[str, str, int]]:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loader = DataLoader(Items(), batch_size=4, pin_memory=not torch.cuda.is_available(), collate_fn=collate)
        for _, batch in zip(range(steps), loader, strict=False):
            optimizer.zero_grad()
            Warns.apply(model(batch)).sum().backward()
            optimizer.step(close)
    return [(str(one.message)[:40], one.filename, one.lineno) for one in found]


def test_warnings_name_the_lines_that_they_name_without_a_recording(tmp_path: Path) -> None:
    bare, recorded = train(2), []
    record(tmp_path / "run", lambda: recorded.extend(train(2)))
    assert recorded == bare
    assert len(bare) > 50
