"""Batches and models that refuse to be looked at: the training must not notice that somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

from tests.support.recording import record

DATASET = [torch.full((4,), float(index)) for index in range(16)]


class _Holder:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class _Raises(_Holder):
    @property
    def shape(self) -> Any:
        raise RuntimeError("no shape")


class _Method(_Holder):
    def shape(self) -> int:
        return 3


class _Negative(_Holder):
    shape = (-5, 2)


class _Huge(_Holder):
    shape = (2**70,)


class _NoLength(list[Any]):
    def __len__(self) -> int:
        raise RuntimeError("no length")

    @property
    def tensor(self) -> Any:
        return list.__getitem__(self, 0)


class _NoValues(dict[str, Any]):
    def values(self) -> Any:
        raise RuntimeError("values are read lazily")

    @property
    def tensor(self) -> Any:
        return self["x"]


def train(model: Callable[..., Any], wrap: Callable[[Any], Any] = _Raises) -> list[float]:
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], 1e-4)
    losses = []
    for batch in DataLoader(DATASET, batch_size=2, collate_fn=lambda samples: wrap(default_collate(samples))):
        loss = (model(batch.tensor) * weight).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


WRAPPERS = (_Raises, _Method, _Negative, _Huge, lambda x: _NoLength([x]), lambda x: _NoValues(x=x))


def test_batch_that_cannot_be_measured_reaches_the_training(tmp_path: Path) -> None:
    model = nn.Identity()
    losses: list[list[float]] = []
    recorded = record(tmp_path, lambda: losses.extend(train(model, wrap) for wrap in WRAPPERS))
    assert losses == [train(model, wrap) for wrap in WRAPPERS]
    assert recorded.kinds == {"train": 8 * len(WRAPPERS)}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_batch_of_nested_tensors_reaches_the_training(tmp_path: Path) -> None:
    def nest(samples: list[Any]) -> list[Any]:
        return [torch.nested.nested_tensor([samples[0], samples[1][:2]]), len(samples)]

    lengths: list[int] = []
    loader = DataLoader(DATASET, batch_size=2, collate_fn=nest)
    record(tmp_path / "run", lambda: lengths.extend(length for _, length in loader))
    assert lengths == [2] * 8


class _Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class _Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__module__":
            raise RuntimeError("no module")
        return super().__getattribute__(name)


class _Sealed(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError("sealed")


def _hide_class(model: object) -> Any:
    raise RuntimeError("hidden")


KINDS: tuple[tuple[type, dict[str, Any]], ...] = (
    *((_Unhashable, {}), (_Nameless, {}), (_Sealed, {})),
    (type, {"__class__": property(_hide_class)}),
)


def test_model_that_refuses_to_be_looked_at_is_trained(tmp_path: Path) -> None:
    forward = {"forward": lambda self, x: x * 2}
    models = [kind("Model", (nn.Module,), {**forward, **more})() for kind, more in KINDS]
    losses: list[list[float]] = []
    recorded = record(tmp_path, lambda: losses.extend(train(model) for model in models))
    assert losses == [train(model) for model in models]
    assert recorded.kinds == {"train": 8 * len(models)}


def test_clock_that_the_script_puts_into_the_module_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def find_loss() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2)).sum()
        loss.backward()
        return loss

    def loop() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                "time.perf_counter_ns", lambda: None
            )  # some hooks are made after it: of forwards, of closures
            for _ in range(8):
                optimizer.step(find_loss)

    assert record(tmp_path, loop).kinds == {"train": 8}


def test_torchdata_with_other_classes_is_said_to_have_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loader:
        def __iter__(self) -> Any:
            return iter(())

    module = ModuleType("torchdata.nodes.loader")
    module.Loader = Loader  # type: ignore[attr-defined]
    before = Loader.__iter__
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        seen: list[Any] = []
        recorded = record(tmp_path, lambda: seen.append(Loader.__iter__) or train(nn.Identity(), _Holder))  # type: ignore[func-returns-value]
    states = {signal.name: signal.state for signal in recorded.run.rank().manifest.signals}
    assert states["torchdata"] == "failed"
    assert seen == [before]
