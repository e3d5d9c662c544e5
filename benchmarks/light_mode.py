"""The cost of the light mode: microseconds a step and slow-down, interleaved, with a base-against-base control.

    python benchmarks/light_mode.py [--blocks 40] [--models small cnn workers] [--arms light profiler wait …]

The models: `small` is an MLP of under half a millisecond a step, `cnn` takes some 9 ms, `workers` is the same CNN fed
by two workers. The arms: `profiler` is torch.profiler recording every step, `wait` is torch.profiler in the wait phase
of its schedule, `viztracer` and `traceml` are the packages of that name (traceml-ai on PyPI), each at its defaults. The
packages are no dependencies of the project: install them beside torch and the project in a separate environment,

    python -m venv peers && peers/bin/pip install torch traceml-ai viztracer && peers/bin/pip install -e .

Only the steps are timed, not the start and the stop of a profiler. The arms take turns block by block in random order.
`base` and `control` run without a profiler, and their difference is the noise of this machine, which limits all other
figures. TraceML cannot be removed from a process, so its arm trains in a separate process beside its server. `twin` is
a separate process in which nothing is installed.

A block is long, because the interpreter takes some hundred steps to specialise its code after a hook has come or gone.
A training pays that once. Each block is the median of its steps. A figure is the median over blocks of the difference
to the base block of the same round, with its 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from collector.format.run import open_run
from collector.options import parse_options
from collector.session.recording import Recording

ARMS = ("light", "profiler", "wait", "viztracer", "traceml")
LANES = {"traceml": "traceml", "twin": "twin"}
"""Arms that train in a separate process; all other arms share a process."""
WARM_UP = 5
TRACEML_PORT = 29765


class Samples(Dataset[Any]):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.x = torch.randn(64, *shape)

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.x[index % 64], index % 10


class Plan(NamedTuple):
    """A model, its loader, and how many steps make a block."""

    model: nn.Module
    loader: DataLoader[Any]
    steps: int


def plan_mlp() -> Plan:
    width = 384
    layers = (nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return Plan(nn.Sequential(*layers), DataLoader(Samples((64,)), 16), 1000)


def plan_cnn(workers: int) -> Plan:
    def block(before: int, after: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU()]

    layers = [*block(3, 16, 1), *block(16, 32, 2), *block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    return Plan(model, DataLoader(Samples((3, 32, 32)), 32, num_workers=workers), 20)


MODELS: dict[str, Callable[[], Plan]] = {
    "small": plan_mlp,
    "cnn": lambda: plan_cnn(0),
    "workers": lambda: plan_cnn(2),
}


class Training:
    """A model, and a loop that times each of its steps. `batches` is the iterator of the current arm."""

    def __init__(self, model_name: str) -> None:
        self.model, self.loader, self.steps = MODELS[model_name]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loss_of = nn.CrossEntropyLoss()
        self.batches: Iterator[Any] = iter(self.loader)

    def begin(self, own: Iterator[Any] | None) -> None:
        """Choose the batches of an arm: the iterator `own` if the loader has workers, else a new iterator, made under
        this arm."""
        self.batches = own if own is not None and self.loader.num_workers else iter(self.loader)

    def run(self, each_step: Callable[[], Any] = nullcontext, after: Callable[[], object] = int) -> float:
        """Return the median step in ns, `each_step` and `after` included."""
        durations = []
        for _ in range(WARM_UP + self.steps):
            before = time.perf_counter_ns()
            with each_step():
                x, y = next(self.batches)
                self.optimizer.zero_grad()
                self.loss_of(self.model(x), y).backward()
                self.optimizer.step()
            after()
            durations.append(time.perf_counter_ns() - before)
        return statistics.median(durations[WARM_UP:])


class Light:
    """A recording that is switched on and off. While it is off, no patch is installed."""

    def __init__(self, training: Training, folder: Path) -> None:
        self.plain = training.batches
        self._recording = Recording(folder, parse_options({"window": None}))
        self._recording.resume()
        self.own = training.batches = iter(training.loader)
        training.run()
        self._leave()

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._recording._install_signals()
        self._recording.resume()
        try:
            yield
        finally:
            self._leave()

    def finish(self, folder: Path) -> float:
        """Finish the recording, and return the cost that it reports, in ns a step."""
        self._recording.finish()
        return open_run(folder).rank(0).manifest.overhead.training_thread_ns_per_step or 0.0

    def _leave(self) -> None:
        self._recording.pause()
        for signal in self._recording._signals:
            signal.remove()
        self._recording._signals.clear()
        self._recording.context.undo.restore()


def run_arm(arm: str, training: Training, light: Light | None) -> float:
    if light is not None and arm == "light":
        with light.recording():
            training.begin(light.own)
            return training.run()
    if light is not None:
        training.begin(light.plain)
    if arm == "profiler":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return training.run()
    if arm == "wait":
        schedule = torch.profiler.schedule(wait=10**9, warmup=1, active=1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profiler:
            return training.run(after=profiler.step)
    if arm == "viztracer":
        tracer = importlib.import_module("viztracer").VizTracer(verbose=0)
        tracer.start()
        try:
            return training.run()
        finally:
            tracer.stop()
            tracer.clear()
    if arm == "traceml":
        trace_step = importlib.import_module("traceml_ai").trace_step
        return training.run(each_step=lambda: trace_step(training.model))
    return training.run()


def serve_lane(lane: str, model_name: str) -> None:
    """Train a block for each arm named on stdin, and print its median step in ns. The lane with a recording ends with
    the cost that the recording reports."""
    torch.set_num_threads(1)
    if lane == "traceml":
        importlib.import_module("traceml_ai").init(on_missing_aggregator="raise")
    training = Training(model_name)
    training.run()
    with tempfile.TemporaryDirectory() as folder:
        light = Light(training, Path(folder) / "run") if lane == "shared" else None
        for line in sys.stdin:
            print("answer", json.dumps(run_arm(line.strip(), training, light)), flush=True)
        if light is not None:
            print("answer", json.dumps(light.finish(Path(folder) / "run")), flush=True)


class Lane:
    """A process that trains on request, and waits otherwise."""

    def __init__(self, lane: str, model_name: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--lane", lane, "--models", model_name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, arm: str) -> float:
        assert self._process.stdin is not None
        print(arm, file=self._process.stdin, flush=True)
        return self._read_answer()

    def end(self) -> float:
        """End the process, and return the cost that its recording reports, in ns a step; 0 without a recording."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        answer = self._read_answer()
        self._process.wait()
        return answer

    def _read_answer(self) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # a peer may print lines of its own
            word, _, value = line.partition(" ")
            if word == "answer":
                return float(value)
        return 0.0


def measure(model_name: str, arms: tuple[str, ...], blocks: int) -> tuple[dict[str, list[float]], float]:
    """Run the blocks. Return ns per step of each arm, block by block, and the cost that the recording reports."""
    lanes = {lane: Lane(lane, model_name) for lane in {LANES.get(arm, "shared") for arm in arms}}
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(blocks):
        for arm in random.sample(arms, len(arms)):
            times[arm].append(lanes[LANES.get(arm, "shared")].ask(arm))
    return times, max(lane.end() for lane in lanes.values())


@contextmanager
def start_traceml(is_wanted: bool) -> Iterator[None]:
    """Start the server of TraceML if TraceML is one of the arms."""
    if not is_wanted:
        yield
        return
    command = [str(Path(sys.executable).with_name("traceml")), "serve", "--aggregator-port", str(TRACEML_PORT)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(5)
        yield
    finally:
        server.terminate()
        server.wait()


def bound(values: list[float], rounds: int = 2000) -> tuple[float, float, float]:
    """Return the median and the ends of its 95 % bootstrap interval."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(rounds))
    return statistics.median(values), medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def show(name: str, result: dict[str, list[float]], own_ns: float) -> None:
    base = statistics.median(result["base"])
    print(f"{name}: base step {base / 1e6:.3f} ms, spread of its blocks {spread(result['base']):.1%}")
    for arm in list(result)[1:]:
        middle, low, high = bound([a - b for a, b in zip(result[arm], result["base"], strict=True)])
        slow = bound([a / b - 1 for a, b in zip(result[arm], result["base"], strict=True)])[0]
        print(f"  {arm:<10} {middle / 1e3:>+8.1f} µs [{low / 1e3:+.1f}, {high / 1e3:+.1f}] {slow:>+8.2%}", flush=True)
    print(f"  the run says of itself: {own_ns / 1e3:.1f} µs")


def spread(values: list[float]) -> float:
    """Return the distance between the quartiles, relative to the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=list(MODELS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["light"])
    parser.add_argument("--lane", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.lane:
        serve_lane(arguments.lane, arguments.models[0])
        return
    random.seed(0)
    twins = ("twin",) if "traceml" in arguments.arms else ()
    with start_traceml("traceml" in arguments.arms):
        for name in arguments.models:
            show(name, *measure(name, ("base", "control", *twins, *arguments.arms), arguments.blocks))


if __name__ == "__main__":
    main()
