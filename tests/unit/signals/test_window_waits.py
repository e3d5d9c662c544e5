"""What a detailed window does where another profiler is at work, or where the device that was asked for is missing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.support import shapes
from tests.support.recording import record


def test_a_window_is_taken_once_the_other_profiler_has_ended(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        optimizer, batches = shapes.sgd(model), list(shapes.loader(320))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            shapes.train_on(model, optimizer, batches[:10])
        shapes.train_on(model, optimizer, batches[10:])

    rank = record(tmp_path, loop, window=(5, 2)).run.rank()
    (window,) = rank.manifest.windows
    assert 11 <= window.first_step <= 12
    assert {signal.name: signal.state for signal in rank.manifest.signals}["window"] == "on"


def test_a_device_that_is_missing_is_said(tmp_path: Path) -> None:
    rank = record(tmp_path, shapes.plain, window=(3, 1), activities="device").run.rank()
    wanted = torch.accelerator.is_available()
    assert any(warning.code == "no_device" for warning in rank.manifest.warnings) is not wanted


def test_samples_that_are_not_collated_count_one_by_one(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        optimizer = shapes.sgd(model)
        for (x,) in DataLoader(TensorDataset(torch.randn(20, 16)), batch_size=None):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    assert record(tmp_path, loop).count("samples") == [1] * 20
