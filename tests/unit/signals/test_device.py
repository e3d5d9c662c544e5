"""Device time of the phases, by events of a device that is made up: nothing waits for it, and its failure ends nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from collector.format.run import Run
from collector.signals.device import DeviceSignal
from tests.support.recording import record


class Event:
    """Passes when the next ones were recorded; every event lies 1 ms after the one before."""

    recorded = 0
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def record(self) -> None:
        type(self).recorded += 1
        self.at = self.recorded

    def query(self) -> bool:
        return self.recorded > self.at

    def elapsed_time(self, later: Event) -> float:
        return float(later.at - self.at)

    def synchronize(self) -> None:
        raise AssertionError("nothing may wait for the device")


class Broken(Event):
    def record(self) -> None:
        raise RuntimeError("an illegal memory access was encountered")


def train(steps: int = 40) -> None:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(2 * steps, 8)), 2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        model(batch).sum().backward()
        optimizer.step()


def record_with(event: Callable[[], Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    install = DeviceSignal.install

    def install_with_device(signal: DeviceSignal, context: Any) -> None:
        with monkeypatch.context() as there:
            there.setattr(torch.cuda, "is_available", lambda: True)
            install(signal, context)

    monkeypatch.setattr(DeviceSignal, "install", install_with_device)
    monkeypatch.setattr(DeviceSignal, "make_event", lambda signal: event())
    Event.recorded = Event.made = 0
    return record(path, train).run


def test_one_step_in_ten_is_measured_and_its_parts_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = record_with(Event, tmp_path, monkeypatch).table("device_phases").to_pylist()
    assert sorted({row["step"] for row in rows}) == [11, 21, 31]
    first = {row["phase"]: row["duration_ns"] for row in rows if row["step"] == 11}
    assert first == {"forward": 2_000_000, "backward": 2_000_000, "optimizer": 1_000_000, "tail": 1_000_000}
    assert Event.made < Event.recorded  # they are used again


def test_a_device_that_fails_switches_the_signal_off_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record_with(Broken, tmp_path, monkeypatch)
    assert run.rank().count_steps() == 40
    (signal,) = [entry for entry in run.rank().manifest.signals if entry.name == "device_time"]
    assert signal.state == "failed"
    assert "illegal memory access" in signal.reason


def test_without_a_device_nothing_is_patched_and_nothing_is_missing(tmp_path: Path) -> None:
    run = record(tmp_path, train).run
    assert run.rank().status("device_phases").state == "missing"
    assert not [entry for entry in run.rank().manifest.signals if entry.name == "device_time"]
