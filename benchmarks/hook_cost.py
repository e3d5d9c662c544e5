"""The cost of each hook at its place in a training step, in ns: a figure that a busy machine hardly changes.

    python benchmarks/hook_cost.py [--steps 4000]

Nothing is installed. A small model trains, and each hook is called at its place in the step without the function that
it would wrap, so that the caches are as the step has left them. The hooks also push data of the training out of the
caches. That cost is not included here; `light_mode.py` includes it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from light_mode import Training

from collector import signals as room
from collector.context.signals import SignalContext
from collector.options import parse_options
from collector.plugins import find_plugins
from collector.ring.words import WordLog
from collector.session.recording import Recording


def rehearse(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the hooks by name. They write to a log that nobody reads."""
    recording = Recording(folder / "run", parse_options({"window": None}), with_sidecar=False)
    recording.leave()
    log = WordLog(folder / "scratch")
    stage = SignalContext(recording.place.rank_folder, recording.options, log, recording.context.notes)
    stage.steps.ended = 100
    hooks: dict[str, Callable[[], object]] = {"nothing": lambda: None}
    for kind in find_plugins(room, "SIGNAL"):
        hooks |= kind().rehearse(stage) if hasattr(kind, "rehearse") else {}
    return hooks


def measure(training: Training, hooks: dict[str, Callable[[], object]], steps: int) -> dict[str, list[int]]:
    model, optimizer, loss_of, batches = training.model, training.optimizer, training.loss_of, training.batches
    times: dict[str, list[int]] = {name: [] for name in hooks}

    def call(name: str) -> None:
        hook, before = hooks[name], time.perf_counter_ns()
        hook()
        times[name].append(time.perf_counter_ns() - before)

    for _ in range(steps):
        x, y = next(batches)
        call("nothing")
        call("fetch")
        optimizer.zero_grad()
        call("zero")
        loss = loss_of(model(x), y)
        call("forward")
        loss.backward()
        call("backward")
        optimizer.step()
        call("update")
    return {name: values for name, values in times.items() if values}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        hooks = rehearse(Path(folder))
        training = Training("small")
        training.run()
        middle = {name: statistics.median(values) for name, values in measure(training, hooks, given.steps).items()}
    nothing = middle.pop("nothing")
    for name, took_ns in middle.items():
        print(f"{name:<10}{took_ns - nothing:>8,.0f} ns")
    print(f"{'a step':<10}{sum(middle.values()) - nothing * len(middle):>8,.0f} ns")


if __name__ == "__main__":
    main()
