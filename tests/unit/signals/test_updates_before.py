"""How many updates an optimizer had counted before the first recorded step: a training that goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from tests.support.recording import record

Make = Callable[[Any], Optimizer]


def update(optimizers: Sequence[Optimizer], model: torch.nn.Module, count: int) -> None:
    for _ in range(count):
        model(torch.ones(2, 4)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()


def read_before(path: Path, *updates: tuple[Make, int]) -> object:
    """Record three steps of optimizers that go on from a checkpoint made after so many updates."""
    model = torch.nn.Linear(4, 1)
    optimizers = []
    for make, count in updates:
        saved = make(model.parameters())
        update([saved], model, count)
        optimizers.append(make(model.parameters()))
        optimizers[-1].load_state_dict(saved.state_dict())
    recorded = record(path, lambda: update(optimizers, model, 3))
    return recorded.run.rank().manifest.facts["updates_before"]


class Own(Optimizer):  # type: ignore[misc]
    """An optimizer that counts in whole numbers, and holds what is no number beside."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["step"] = state.get("step", 0) + 1


class Strange(Own):
    def step(self, closure: Any = None) -> None:
        self.state[self.param_groups[0]["params"][0]] = {"step": torch.ones(3)}
        self.state[self.param_groups[0]["params"][1]] = {"step": "many"}


@pytest.mark.parametrize("make", [Adam, AdamW, RMSprop, Own, lambda parameters: Adam(parameters, fused=True)])
def test_the_count_of_a_checkpoint_is_that_of_its_updates(make: Make, tmp_path: Path) -> None:
    assert read_before(tmp_path / "new", (make, 0)) == 0
    assert read_before(tmp_path / "loaded", (make, 7)) == 7


@pytest.mark.parametrize("make", [lambda parameters: SGD(parameters, 0.1, momentum=0.9), Strange])
def test_the_count_of_an_optimizer_that_holds_none_is_unknown(make: Make, tmp_path: Path) -> None:
    assert read_before(tmp_path, (make, 7)) is None


def test_the_count_is_unknown_where_the_optimizers_of_a_step_differ(tmp_path: Path) -> None:
    assert read_before(tmp_path / "same", (Adam, 7), (AdamW, 7)) == 7
    assert read_before(tmp_path / "other", (Adam, 7), (AdamW, 0)) is None
    assert read_before(tmp_path / "beside", (Adam, 7), (lambda parameters: SGD(parameters, 0.1), 7)) is None


def test_an_optimizer_that_is_made_in_a_later_step_changes_no_count(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)

    def loop() -> None:
        batches = torch.utils.data.DataLoader(list(torch.ones(8, 4)), batch_size=2)
        optimizers = [Adam(model.parameters())]
        for step, batch in enumerate(batches):
            optimizers += [Adam(model.parameters())] if step == 2 else []
            model(batch).sum().backward()
            for optimizer in optimizers:
                optimizer.step()

    facts = record(tmp_path, loop).run.rank().manifest.facts
    assert len(facts["optimizers"]) == 2
    assert facts["updates_before"] == 0
