"""What stays as it is: torch while nothing is recorded, and the size of what a recording holds however long it lasts."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from collector.context import signals
from collector.options import parse_options
from collector.session.recording import Recording
from collector.signals.optimizer import MOST_OPTIMIZERS
from tests.support import forking

MOST_LOADERS = 18
UNTOUCHED = """
import gc, sys, threading
import collector
profiler = collector.Profiler(sys.argv[1], start_profile=False)
collector.push_range("a"), collector.pop_range()
assert "torch" not in sys.modules
assert not gc.callbacks and threading.active_count() == 1
import torch, torch.utils.data.dataloader as dataloader
owners = (torch.autograd._engine_run_backward, torch.optim.Optimizer.zero_grad, dataloader._BaseDataLoaderIter.__next__,
          torch.nn.Module.__call__, torch.save)
assert all(owner.__module__.startswith("torch") for owner in owners), owners
import os
print(os.path.exists(sys.argv[1]))
"""


def test_a_profiler_that_was_not_started_touches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNTOUCHED, str(tmp_path / "run")]
    done = forking.run(command)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


def train(epochs: int) -> None:
    """Make everything anew for every epoch, as careless scripts do, with loaders of other data each time."""
    model = torch.nn.Linear(2, 2)
    for epoch in range(epochs):
        points = [(torch.ones(2), 0) for _ in range(4 + epoch)]
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch, classes in DataLoader(points, 2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), classes).backward()
            optimizer.step()


def count_own() -> Counter[str]:
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if str(kind.__module__).startswith("collector.")
    )


def test_what_a_recording_holds_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MOST_LOADERS", MOST_LOADERS)
    recording = Recording(tmp_path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    context = recording.context

    def measure() -> tuple[Counter[str], int, int]:
        train(5)
        return count_own(), len(context.loaders._known), len(context.loaders._gone)

    try:
        train(MOST_LOADERS + 3)
        assert measure() == measure()
        assert len(context.notes.loaders) == MOST_LOADERS
        assert len(context.notes.facts["optimizers"]) <= MOST_OPTIMIZERS
    finally:
        recording.finish()
