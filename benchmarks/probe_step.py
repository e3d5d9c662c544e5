"""How near the probe's input-free step is to the same loop on batches from a list.

    python benchmarks/probe_step.py [--rounds 5] [--steps 300] [--loops sleeping computing waiting]

Each loop waits for its data. `sleeping` workers use no processor, so the two figures should be equal. `computing`
workers use processors beside the steps of the probe as in the training, while the loop on cached batches has no
workers. The difference of the figures is what the workers take from the steps. In the `waiting` loop the step itself
mostly sleeps, as if for a device, so that a busy machine does not hide how near the figures are.

The time to receive a batch is subtracted from the probe's step, because a list costs none. `estimate` is the mean step
less its data wait, which is known without a probe. The arms take turns. Every figure is a median over the rounds, with
the least and the greatest value.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from collector import Profiler
from collector.format.run import Run
from collector.format.steps import summarize_phases
from profiler_server.analysis.recorded_facts import read_probe

BATCH, WORKERS, WARM_UP = 8, 2, 20
SAMPLE_S = 0.003
LOOPS = {"sleeping": (False, 0.0), "computing": (True, 0.0), "waiting": (False, 0.01)}
"""For each loop, whether the workers compute, and how long the step sleeps, in s. A batch always takes longer to make
than the step sleeps."""


class Samples(Dataset[Any]):  # type: ignore[misc]
    """Images that take SAMPLE_S each to make, asleep or computing."""

    def __init__(self, steps: int, *, computes: bool) -> None:
        self.steps, self.computes = steps, computes

    def __len__(self) -> int:
        return self.steps * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        until = time.perf_counter() + SAMPLE_S
        if not self.computes:
            time.sleep(SAMPLE_S)
        while time.perf_counter() < until:
            sum(range(200))
        return torch.full((3, 32, 32), index % 7 / 7), index % 10


class Loop:
    def __init__(self, sleep_s: float) -> None:
        self.sleep_s = sleep_s
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
        self.model = nn.Sequential(*layers)
        self.model(torch.zeros(BATCH, 3, 32, 32))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        time.sleep(self.sleep_s)


def run_probed(steps: int, computes: bool, sleep_s: float) -> tuple[float, float, float]:
    """Return the probe's step without receiving, the mean step less its data wait, and the cost of the probe, in ms."""
    loop = Loop(sleep_s)
    with tempfile.TemporaryDirectory() as folder:
        profiler = Profiler(Path(folder) / "run", probe=True, window=None, stacks=False)
        for x, y in DataLoader(Samples(steps, computes=computes), BATCH, num_workers=WORKERS):
            loop.step(x, y)
        run: Run = profiler.analyse()
        found = run.rank().manifest.facts["probe"]
        phases = summarize_phases(run.table("steps"))
        measured = read_probe(run.rank().manifest.facts, run.table("steps"))
    lengths = [length for entry in found["rounds"] for length in entry["step_ns"]]
    estimate = sum(phase.mean_ns for phase in phases if phase.name != "data_wait")
    own = statistics.fmean(lengths) - ((measured.receiving_ns or 0.0) if measured is not None else 0.0)
    return own / 1e6, estimate / 1e6, found["cost_ns"] / 1e6


def run_cached(steps: int, sleep_s: float) -> float:
    loop, batches = Loop(sleep_s), [(torch.full((BATCH, 3, 32, 32), 0.3), torch.arange(BATCH) % 10) for _ in range(8)]
    times = []
    for number in range(steps):
        begun = time.perf_counter()
        loop.step(*batches[number % len(batches)])
        times.append(time.perf_counter() - begun)
    return statistics.fmean(times[WARM_UP:]) * 1e3


def describe(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f} ({min(values):.3f} - {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=tuple(LOOPS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.loops:
        computes, sleep_s = LOOPS[name]
        rows = [
            (*run_probed(given.steps, computes, sleep_s), run_cached(given.steps, sleep_s)) for _ in range(given.rounds)
        ]
        probed, estimate, cost, cached = (list(values) for values in zip(*rows, strict=True))
        ratios = [one / other for one, other in zip(probed, cached, strict=True)]
        print(f"{name}: ms a step")
        print(f"  probe     {describe(probed)}")
        print(f"  cached    {describe(cached)}")
        print(f"  estimate  {describe(estimate)}")
        print(f"  probe / cached {describe(ratios)}; the probe cost {describe(cost)} ms in all")


if __name__ == "__main__":
    main()
