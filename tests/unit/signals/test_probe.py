"""The probe in real trainings: they end as they do without it, whatever happens while they are held back."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.data import DataLoader, Dataset

import collector
from collector.format.steps import select_steps
from collector.signals import probe as probing
from tests.support.recording import Recorded, assert_sound, record

MS = 1e-3


class Augmented(Dataset[Any]):  # type: ignore[misc]
    """Samples that take longer to make than a step, changed at random by every library that draws."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Any:
        time.sleep(2 * MS)
        noise = torch.rand(8) + random.random() + float(np.random.rand())
        return noise * index, index % 3


def train(state: dict[str, Any], epochs: int = 2, **options: Any) -> None:
    """Train with everything that draws random numbers or counts; `state` is what a later run would go on from."""
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(Augmented(), 4, shuffle=True, **{"num_workers": 2, **options})
    state["batches"] = []
    for _ in range(epochs):
        batches = iter(loader)
        try:
            for x, y in batches:
                state["batches"].append(x.clone())
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        finally:
            if loader.num_workers:
                batches._shutdown_workers()  # an error holds the iterator, and then it takes torch five seconds
    kept = [
        entry[name] for entry in optimizer.state_dict()["state"].values() for name in ("exp_avg", "exp_avg_sq", "step")
    ]
    state["tensors"] = [*model.state_dict().values(), *kept, torch.get_rng_state()]
    state["numbers"] = (random.getstate(), str(np.random.get_state()))


def are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Recorded]:
    """What a training with the probe has come to, and its recording."""
    torch.set_num_threads(1)  # the comparison is bit for bit
    state: dict[str, Any] = {}
    return state, record(tmp_path_factory.mktemp("probed"), lambda: train(state), probe=True)


def test_a_training_with_the_probe_ends_bit_for_bit_as_without(probed: tuple[dict[str, Any], Recorded]) -> None:
    plain: dict[str, Any] = {}
    train(plain)
    state, recorded = probed
    assert are_equal(plain["batches"], state["batches"])
    assert are_equal(plain["tensors"], state["tensors"])
    assert plain["numbers"] == state["numbers"]
    assert_sound(recorded)
    found = recorded.run.rank().manifest.facts["probe"]
    assert sum(len(entry["step_ns"]) for entry in found["rounds"]) >= 4
    assert found["cost_ns"] > 0
    assert not [hook for hook in _global_optimizer_post_hooks.values() if "collector" in hook.__module__]
    assert "stepscope-probe" not in [thread.name for thread in threading.enumerate()]


def test_no_average_and_no_queue_holds_what_the_probe_has_changed(probed: tuple[dict[str, Any], Recorded]) -> None:
    recorded = probed[1]
    selection = select_steps(recorded.run.table("steps"))
    marked = {row["step"] for row in recorded.train if row["probed"]}
    first = recorded.run.rank().manifest.facts["probe"]["rounds"][0]
    measured = range(first["first_step"], first["first_step"] + len(first["step_ns"]))
    assert set(measured) <= marked
    assert not marked & set(selection.step[selection.kept].tolist())
    assert marked == {int(step) for group in selection.left_out if group.reason == "probe" for step in group.steps}
    assert not marked & {row["step"] for row in recorded.run.table("queues").to_pylist()}
    held = [row for row in recorded.rows if row["kind"] == "rest" and row["probed"]]
    assert sum(row["duration_ns"] for row in held) >= first["waited_ns"]


@pytest.mark.parametrize(
    ("options", "reason"), [({"num_workers": 0}, "Without workers"), ({"in_order": False}, "in_order=False")]
)
def test_a_training_that_it_would_change_is_left_alone(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    recorded = record(tmp_path, lambda: train({}, 1, **options), probe=True)
    signals = {entry.name: entry for entry in recorded.run.rank().manifest.signals}
    assert signals["probe"].state == "unavailable"
    assert reason in signals["probe"].reason
    told = {entry.code: entry.text for entry in recorded.run.rank().manifest.warnings}
    assert told["probe_unavailable"] == f"The probe measured nothing. {signals['probe'].reason}"
    assert not any(row["probed"] for row in recorded.rows)


@pytest.fixture
def held_early(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Do something the first time that the training is held back."""
    original = time.sleep

    def arrange(action: Callable[[], None]) -> None:
        def sleep(seconds: float) -> None:
            monkeypatch.setattr(time, "sleep", original)
            action()
            original(seconds)

        def look(prober: Any, iterator: Any) -> Any:
            found = find(prober, iterator)
            if found:
                monkeypatch.setattr(time, "sleep", sleep)
            # On a busy machine the workers may be ahead, and nothing would have to be waited for.
            return [replace(supply, missing=1) for supply in found]

        find = probing.Prober._find_supply
        monkeypatch.setattr(probing.Prober, "_find_supply", look)

    return arrange


class Preempted(Exception):
    """What a handler of the user's raises."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, Preempted])
def test_what_a_signal_raises_meanwhile_is_shown_without_our_frames(
    tmp_path: Path, held_early: Callable[[Callable[[], None]], None], error: type[BaseException]
) -> None:
    def handle(number: int, frame: object) -> None:
        raise error

    held_early(lambda: signal.raise_signal(signal.SIGUSR1))
    old = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(error) as caught:
            record(tmp_path, lambda: train({}, 1), probe=True)
    finally:
        signal.signal(signal.SIGUSR1, old)
    package = str(Path(collector.__file__).parent)
    frames = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert sys.version_info < (3, 11) or not [name for name in frames if name.startswith(package)]
