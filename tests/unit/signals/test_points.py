"""FP_POINT and BP_POINT name where the forward starts and the backward ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support import shapes
from tests.support.recording import assert_sound, record

PAUSE_S = 0.02


class Preparing(nn.Module):  # type: ignore[misc]
    """Its first part only prepares; the layer named by the point comes after."""

    def __init__(self) -> None:
        super().__init__()
        self.body = shapes.Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(PAUSE_S)
        result: torch.Tensor = self.body(x)
        return result


def train() -> None:
    model = Preparing()
    shapes.train_on(model, shapes.sgd(model), shapes.loader(6 * shapes.BATCH))


def test_without_a_point_the_outermost_module_starts_the_forward(tmp_path: Path) -> None:
    recorded = record(tmp_path, train)
    assert min(recorded.count("forward_ns")) > PAUSE_S * 1e9
    manifest = recorded.run.rank(0).manifest
    assert (manifest.forward_start, manifest.point_source) == ("Preparing", "automatic")


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("Net", "Net"),  # a class without parameters of its own ends the backward, too
        ("body.layers.0", "body.layers.2"),
        ("CrossEntropyLoss", "Linear"),
    ],
)
def test_points_name_a_class_or_one_module_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: str, backward: str
) -> None:
    monkeypatch.setenv("FP_POINT", forward)
    monkeypatch.setenv("BP_POINT", backward)
    recorded = record(tmp_path, train)
    assert_sound(recorded)
    assert min(recorded.count("h2d_ns")[3:]) > PAUSE_S * 1e9  # what lies before the point is preparation
    assert recorded.count("forwards") == [1] * 6
    manifest = recorded.run.rank().manifest
    found = (manifest.forward_start, manifest.backward_end, manifest.point_source)
    assert found == (forward, backward, "environment")
    assert not manifest.warnings


def test_the_backward_ends_with_the_gradients_of_the_named_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            time.sleep(PAUSE_S)
            return gradient

    def loop() -> None:
        model = shapes.Net()
        optimizer = shapes.sgd(model)
        for x, y in shapes.loader(6 * shapes.BATCH):
            optimizer.zero_grad()
            shapes.loss_of(model(Slow.apply(x.requires_grad_())), y).backward()
            optimizer.step()

    monkeypatch.setenv("BP_POINT", "Linear")
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert min(recorded.count("optimizer_ns")) > PAUSE_S * 1e9
    assert recorded.run.rank(0).manifest.backward_end == "Linear"


@pytest.mark.parametrize(
    ("forward", "backward", "told"),
    [
        ("Transformer", "", {"fp_point": "FP_POINT=Transformer"}),
        ("Linaer", "body.layer.2", {"fp_point": "Linear", "bp_point": "body.layers.2"}),
        ("", "ReLU", {"bp_point": "no parameters that are trained"}),
    ],
)
def test_a_point_that_cannot_be_used_is_told_with_the_names_near_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: str, backward: str, told: dict[str, str]
) -> None:
    monkeypatch.setenv("FP_POINT", forward)
    monkeypatch.setenv("BP_POINT", backward)
    manifest = record(tmp_path, train).run.rank().manifest
    texts = {warning.code: warning.text for warning in manifest.warnings}
    assert texts.keys() == told.keys()
    assert all(part in texts[code] for code, part in told.items())
    assert manifest.forward_start == "Preparing"


class SlowLoss(nn.CrossEntropyLoss):  # type: ignore[misc]
    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(PAUSE_S)
        result: torch.Tensor = super().forward(outputs, targets)
        return result


def compute_slowly(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    time.sleep(PAUSE_S)
    return nn.functional.cross_entropy(outputs, targets)


class OfTorch(SlowLoss):
    """Seen as one of torch's own."""


OfTorch.__module__ = nn.CrossEntropyLoss.__module__


@pytest.mark.parametrize(
    ("loss", "zero_first"), [(OfTorch(), True), (SlowLoss(), False), (compute_slowly, True), (compute_slowly, False)]
)
def test_the_loss_is_forward_once_whoever_computes_it(
    tmp_path: Path, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], zero_first: bool
) -> None:
    def loop() -> None:
        model = Preparing()
        optimizer = shapes.sgd(model)
        for x, y in shapes.loader(6 * shapes.BATCH):
            if zero_first:
                optimizer.zero_grad()
            value = loss(model(x), y)
            if not zero_first:
                optimizer.zero_grad()
            value.backward()
            optimizer.step()

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert min(recorded.count("forward_ns")) > 2 * PAUSE_S * 1e9
