"""What the light mode costs: microseconds a step and slow-down, interleaved, with a base-against-base control.

    python benchmarks/light_mode.py [--blocks 60] [--steps 100] [--models tiny mlp cnn]

Three arms take turns block by block in random order: `base` and `control` run without a profiler, `light` with it. The
difference of the first two is the noise of this machine; the light mode is known only as well as that. Each block is
the median of its steps; a figure is the median over blocks of the difference to the base block of the same round,
with the interval that holds it in 95 of 100 bootstrap samples.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from collector.options import parse_options
from collector.recording import Recording
from collector.run import open_run

ARMS = ("base", "control", "light")


class Samples(Dataset[Any]):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.x = torch.randn(64, *shape)

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.x[index % 64], index % 10


def build_mlp(width: int) -> tuple[nn.Module, tuple[int, ...], int]:
    layers = (nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return nn.Sequential(*layers), (64,), 16


def build_cnn() -> tuple[nn.Module, tuple[int, ...], int]:
    def block(before: int, after: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU()]

    layers = [*block(3, 16, 1), *block(16, 32, 2), *block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 10)), (3, 32, 32), 32


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...], int]]] = {
    "tiny": lambda: build_mlp(64),
    "mlp": lambda: build_mlp(512),
    "cnn": build_cnn,
}


def measure(model_name: str, blocks: int, steps: int, folder: Path) -> dict[str, Any]:
    """Run the blocks. Return ns per step of each arm, block by block, and what the run says of itself."""
    model, shape, batch_size = MODELS[model_name]()
    optimizer, loss_of = torch.optim.AdamW(model.parameters()), nn.CrossEntropyLoss()
    batches = iter(DataLoader(Samples(shape), batch_size, num_workers=1))
    recording = Recording(folder, parse_options({"window": None}))
    train_block(model, optimizer, loss_of, batches, 50)
    recording.resume()
    train_block(model, optimizer, loss_of, batches, 20)
    recording.pause()
    times: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for _ in range(blocks):
        for arm in random.sample(ARMS, len(ARMS)):
            if arm == "light":
                install(recording)
            else:
                uninstall(recording)
            times[arm].append(train_block(model, optimizer, loss_of, batches, steps))
    recording.finish()
    return {**times, "overhead": open_run(folder).rank(0).manifest.overhead}


def train_block(model: Any, optimizer: Any, loss_of: Any, batches: Iterator[Any], steps: int) -> float:
    durations = []
    for _ in range(steps):
        before = time.perf_counter_ns()
        x, y = next(batches)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        durations.append(time.perf_counter_ns() - before)
    return statistics.median(durations)


def install(recording: Recording) -> None:
    """Put the patches back that uninstall took away, and record."""
    if not recording._signals:
        recording._install_signals()
    recording.resume()


def uninstall(recording: Recording) -> None:
    """Take every patch away, so that the base is the real base and not a paused recording."""
    recording.pause()
    for signal in recording._signals:
        signal.remove()
    recording._signals.clear()
    recording.context.undo.restore()


def bound(values: list[float], rounds: int = 2000) -> tuple[float, float, float]:
    """Return the median and its bootstrap interval."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(rounds))
    return statistics.median(values), medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=list(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    print(f"{'model':<6} {'base step':>10} {'control':>26} {'light mode':>26} {'slow-down':>10} {'says itself':>12}")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            result = measure(name, arguments.blocks, arguments.steps, Path(folder) / "run")
        base = statistics.median(result["base"])
        cells = []
        for arm in ("control", "light"):
            middle, low, high = bound([a - b for a, b in zip(result[arm], result["base"], strict=True)])
            cells.append(f"{middle / 1e3:+.1f} µs [{low / 1e3:+.1f}, {high / 1e3:+.1f}]")
        slow = bound([a / b - 1 for a, b in zip(result["light"], result["base"], strict=True)])[0]
        own = result["overhead"].training_thread_ns_per_step or 0.0
        print(f"{name:<6} {base / 1e6:>7.3f} ms {cells[0]:>26} {cells[1]:>26} {slow:>+10.2%} {own / 1e3:>9.1f} µs")


if __name__ == "__main__":
    main()
