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
    shapes.train_on(model, shapes.sgd(model), shapes.loader())


def test_time_before_the_named_module_is_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FP_POINT", "Net")
    recorded = record(tmp_path, train)
    assert_sound(recorded)
    assert min(recorded.count("h2d_ns")) > PAUSE_S * 1e9
    manifest = recorded.run.rank(0).manifest
    assert (manifest.forward_start, manifest.point_source) == ("Net", "environment")


def test_without_a_point_the_outermost_module_starts_the_forward(tmp_path: Path) -> None:
    recorded = record(tmp_path, train)
    assert min(recorded.count("forward_ns")) > PAUSE_S * 1e9
    manifest = recorded.run.rank(0).manifest
    assert (manifest.forward_start, manifest.point_source) == ("Preparing", "automatic")


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
        for x, y in shapes.loader():
            optimizer.zero_grad()
            shapes.loss_of(model(Slow.apply(x.requires_grad_())), y).backward()
            optimizer.step()

    monkeypatch.setenv("BP_POINT", "Linear")
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert min(recorded.count("optimizer_ns")) > PAUSE_S * 1e9
    assert recorded.run.rank(0).manifest.backward_end == "Linear"


def test_a_point_that_is_never_called_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FP_POINT", "Transformer")
    manifest = record(tmp_path, train).run.rank(0).manifest
    assert [warning.code for warning in manifest.warnings] == ["fp_point"]
    assert manifest.forward_start == "Preparing"


def test_a_class_without_parameters_of_its_own_ends_the_backward_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BP_POINT", "Net")
    recorded = record(tmp_path, shapes.plain)
    manifest = recorded.run.rank().manifest
    assert manifest.backward_end == "Net"
    assert not [warning for warning in manifest.warnings if warning.code == "bp_point"]


def test_a_point_names_one_module_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FP_POINT", "body.layers.0")
    monkeypatch.setenv("BP_POINT", "body.layers.2")
    recorded = record(tmp_path, train)
    assert_sound(recorded)
    assert min(recorded.count("h2d_ns")) > PAUSE_S * 1e9
    manifest = recorded.run.rank().manifest
    assert (manifest.forward_start, manifest.backward_end) == ("body.layers.0", "body.layers.2")
    assert not manifest.warnings


def test_a_module_without_parameters_starts_the_forward_and_ends_no_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FP_POINT", "ReLU")
    monkeypatch.setenv("BP_POINT", "ReLU")
    manifest = record(tmp_path, train).run.rank().manifest
    assert manifest.forward_start == "ReLU"
    assert [warning.code for warning in manifest.warnings] == ["bp_point"]
    assert "no parameters that are trained" in manifest.warnings[0].text


def test_a_point_that_names_nothing_is_told_with_the_names_near_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FP_POINT", "Linaer")
    monkeypatch.setenv("BP_POINT", "body.layer.2")
    texts = {warning.code: warning.text for warning in record(tmp_path, train).run.rank().manifest.warnings}
    assert "Linear" in texts["fp_point"]
    assert "body.layers.2" in texts["bp_point"]


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


@pytest.mark.parametrize("zero_first", [True, False])
@pytest.mark.parametrize("loss", [OfTorch(), SlowLoss(), compute_slowly])
def test_the_loss_is_forward_once_whoever_computes_it(
    tmp_path: Path, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], zero_first: bool
) -> None:
    def loop() -> None:
        model = Preparing()
        optimizer = shapes.sgd(model)
        for x, y in shapes.loader():
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


def test_the_point_may_be_a_loss_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FP_POINT", "CrossEntropyLoss")
    recorded = record(tmp_path, train)
    assert_sound(recorded)
    manifest = recorded.run.rank().manifest
    assert (manifest.forward_start, manifest.point_source) == ("CrossEntropyLoss", "environment")
    assert not manifest.warnings
    assert min(recorded.count("h2d_ns")[3:]) > PAUSE_S * 1e9
    assert recorded.count("forwards") == [1] * 10
