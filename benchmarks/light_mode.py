"""What the light mode costs: microseconds a step and slow-down, interleaved, with a base-against-base control.

    python benchmarks/light_mode.py [--blocks 60] [--steps 100] [--models small mlp cnn] [--arms light profiler wait …]

`profiler` is torch.profiler recording every step, `wait` is it in the wait phase of its schedule, `viztracer` and
`traceml` are the packages of that name. What starting and stopping them costs is not counted, only their steps.
TraceML cannot be taken out of a process again: with it, every arm carries its wrappers, and it looks cheaper than it is.

The arms take turns block by block in random order: `base` and `control` run without a profiler. The difference of the two is the noise of this machine; the light mode is known only as well as that. Each block is
the median of its steps; a figure is the median over blocks of the difference to the base block of the same round,
with the interval that holds it in 95 of 100 bootstrap samples.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from collector.options import parse_options
from collector.run import open_run
from collector.session.recording import Recording

ARMS = ("light", "profiler", "wait", "viztracer", "traceml")
TRACEML_PORT = 29765


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
    "small": lambda: build_mlp(384),
    "mlp": lambda: build_mlp(512),
    "cnn": build_cnn,
}


class Training:
    """A model, and a loop that times each of its steps: plain SGD for the small one, workers for the large one."""

    def __init__(self, model_name: str) -> None:
        self.model, shape, batch_size = MODELS[model_name]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loss_of = nn.CrossEntropyLoss()
        workers = 2 if model_name == "cnn" else 0
        self.batches = iter(DataLoader(Samples(shape), batch_size, num_workers=workers))

    def run(self, steps: int, each_step: Callable[[], Any] = nullcontext, after: Callable[[], object] = int) -> float:
        """Return the median step in ns, `each_step` and `after` included."""
        durations = []
        for _ in range(steps):
            before = time.perf_counter_ns()
            with each_step():
                x, y = next(self.batches)
                self.optimizer.zero_grad()
                self.loss_of(self.model(x), y).backward()
                self.optimizer.step()
            after()
            durations.append(time.perf_counter_ns() - before)
        return statistics.median(durations)


def measure(model_name: str, arms: tuple[str, ...], blocks: int, steps: int, folder: Path) -> dict[str, Any]:
    """Run the blocks. Return ns per step of each arm, block by block, and what the run says of itself."""
    training = Training(model_name)
    recording = Recording(folder, parse_options({"window": None}))
    training.run(50)
    recording.resume()
    training.run(20)
    uninstall(recording)
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(blocks):
        for arm in random.sample(arms, len(arms)):
            times[arm].append(run_arm(arm, training, recording, steps))
    recording.finish()
    return {**times, "overhead": open_run(folder).rank(0).manifest.overhead}


def run_arm(arm: str, training: Training, recording: Recording, steps: int) -> float:
    if arm == "light":
        install(recording)
        try:
            return training.run(steps)
        finally:
            uninstall(recording)
    if arm == "profiler":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return training.run(steps)
    if arm == "wait":
        schedule = torch.profiler.schedule(wait=10**9, warmup=1, active=1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profiler:
            return training.run(steps, after=profiler.step)
    if arm == "viztracer":
        tracer = importlib.import_module("viztracer").VizTracer(verbose=0)
        tracer.start()
        try:
            return training.run(steps)
        finally:
            tracer.stop()
            tracer.clear()
    if arm == "traceml":
        trace_step = importlib.import_module("traceml_ai").trace_step
        return training.run(steps, each_step=lambda: trace_step(training.model))
    return training.run(steps)


@contextmanager
def start_traceml(is_wanted: bool) -> Iterator[None]:
    """Start TraceML and the process that it reports to, if it is one of the arms."""
    if not is_wanted:
        yield
        return
    command = [str(Path(sys.executable).with_name("traceml")), "serve", "--aggregator-port", str(TRACEML_PORT)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(5)
        importlib.import_module("traceml_ai").init(on_missing_aggregator="raise")
        yield
    finally:
        server.terminate()


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
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["light"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    with start_traceml("traceml" in arguments.arms):
        for name in arguments.models:
            with tempfile.TemporaryDirectory() as folder:
                arms = ("base", "control", *arguments.arms)
                show(name, measure(name, arms, arguments.blocks, arguments.steps, Path(folder) / "run"))


def show(name: str, result: dict[str, Any]) -> None:
    overhead = result.pop("overhead")
    base = statistics.median(result["base"])
    print(f"{name}: base step {base / 1e6:.3f} ms, spread of its blocks {spread(result['base']):.1%}")
    for arm in list(result)[1:]:
        middle, low, high = bound([a - b for a, b in zip(result[arm], result["base"], strict=True)])
        slow = bound([a / b - 1 for a, b in zip(result[arm], result["base"], strict=True)])[0]
        print(f"  {arm:<10} {middle / 1e3:>+8.1f} µs [{low / 1e3:+.1f}, {high / 1e3:+.1f}] {slow:>+8.2%}", flush=True)
    own = overhead.training_thread_ns_per_step
    print(f"  the run says of itself: {(own or 0.0) / 1e3:.1f} µs")


def spread(values: list[float]) -> float:
    """Return the distance between the quartiles, relative to the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


if __name__ == "__main__":
    main()
