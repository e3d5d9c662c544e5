"""The cost of reading stacks for the training, interleaved, with a base-against-base control.

    python benchmarks/stack_cost.py [--blocks 40] [--models small cnn] [--one-core]

A separate process reads the stacks of this process as the recorder process does. Signals stop and continue it, so that
blocks with and without it take turns in random order in one training. `base` and `control` are both without it, and
their difference is the noise of this machine. A figure is the median over rounds of the change of a block's mean step,
with its 95 % bootstrap interval. "On a processor" is the change of the time for which the training thread ran, which
other programs disturb less. `--one-core` gives the training and the reader one processor together: the worst case,
because the reader then takes all its computing from the training.

Also prints how much of a processor the reader used while it read, the stacks read in a second, and the time of one
stack.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from light_mode import MODELS, Training

from collector.frames.posting import TRAINER, post_thread

_READER = """
import sys, time
from pathlib import Path
from collector.sidecar.stack_sampling import StackSampler
from collector.sidecar.stack_sampling import StackBook

sampler = StackSampler(Path(sys.argv[1]), StackBook(), float(sys.argv[2]))
sampler.start()
print("there", flush=True)
count = 0
while True:
    time.sleep(0.2)
    count += len(sampler.take())
    print(count, flush=True)
"""
ARMS = ("base", "control", "stacks")
BLOCK_S = 1.0


class Reader:
    """The process that reads the stacks of this process. It is stopped except inside of `reading`."""

    def __init__(self, folder: Path) -> None:
        log = (folder / "count").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _READER, str(folder), str(len(os.sched_getaffinity(0)))], stdout=log
        )
        self._count = folder / "count"
        while not self._count.read_text():
            time.sleep(0.05)
        post_thread(folder, TRAINER, -1, self.process.pid)
        time.sleep(1.0)
        self.used_s = self.ran_s = 0.0
        self.process.send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        before, begun = self._measure(), time.perf_counter()
        self.process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)
            self.used_s += self._measure() - before
            self.ran_s += time.perf_counter() - begun

    def count(self) -> int:
        return int((self._count.read_text().split() or ["0"])[-1].replace("there", "0"))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def _measure(self) -> float:
        # Of all threads in ns, as the scheduler counts them: the clock of cpu_times() is too coarse.
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


class Block(NamedTuple):
    """The mean step, and the time of a mean step for which the training thread was on a processor."""

    wall_ns: float
    cpu_ns: float


def run_block(training: Training) -> Block:
    """Train for about a second."""
    training.begin(None)
    end = time.perf_counter() + BLOCK_S
    begun, used, steps = time.perf_counter_ns(), time.thread_time_ns(), 0
    while time.perf_counter() < end:
        x, y = next(training.batches)
        training.optimizer.zero_grad()
        training.loss_of(training.model(x), y).backward()
        training.optimizer.step()
        steps += 1
    return Block((time.perf_counter_ns() - begun) / steps, (time.thread_time_ns() - used) / steps)


def bound(changes: list[float]) -> tuple[float, float, float]:
    """Return the median and the ends of its 95 % bootstrap interval."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(changes, k=len(changes))) for _ in range(2000))
    return statistics.median(changes), medians[50], medians[-51]


def measure(model: str, blocks: int) -> None:
    training = Training(model)
    training.run()
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder))
        times: dict[str, list[Block]] = {arm: [] for arm in ARMS}
        for _ in range(blocks):
            for arm in random.sample(ARMS, len(ARMS)):
                with reader.reading() if arm == "stacks" else contextlib.nullcontext():
                    times[arm].append(run_block(training))
        samples = reader.count()
        reader.end()
    print(f"{model}: step {statistics.median(block.wall_ns for block in times['base']) / 1e6:.3f} ms, {blocks} rounds")
    for arm in ARMS[1:]:
        pairs = list(zip(times[arm], times["base"], strict=True))
        wall = bound([100 * (own.wall_ns / base.wall_ns - 1) for own, base in pairs])
        cpu = bound([100 * (own.cpu_ns / base.cpu_ns - 1) for own, base in pairs])
        told = ", on a processor ".join("{:+.2f} % [{:+.2f}, {:+.2f}]".format(*change) for change in (wall, cpu))
        print(f"  {arm:<8} {told}")
    print(
        f"  the reader: {100 * reader.used_s / reader.ran_s:.2f} % of a processor, {samples / reader.ran_s:.0f} stacks a "
        f"second, {1e6 * reader.used_s / max(samples, 1):.0f} µs each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=["small", "cnn"])
    parser.add_argument("--one-core", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one_core:
        os.sched_setaffinity(0, {min(psutil.Process().cpu_affinity())})
    for model in options.models:
        measure(model, options.blocks)


if __name__ == "__main__":
    main()
