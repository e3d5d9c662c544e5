"""The cost of the clocks in a worker, per batch and per sample: the same fetcher with and without clocks, interleaved.

python benchmarks/worker_cost.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from collector.ring.stage_log import StageLog
from collector.workers.fetching import FetchProbe, Place
from collector.workers.tally import Rhythm

BATCH = 32
ROUNDS = 25
LOOPS_PER_US = 40  # about; the exact length does not matter


class Step:
    def __call__(self, sample: int) -> int:
        return sample


class EveryBatch(Rhythm):
    """A rhythm that times every batch inside, whatever the timing costs."""

    __slots__ = ()

    def learn(self, work_ns: int, samples: int, calls: int) -> None:
        pass


class Work:
    """Samples that take `sample_us` of processor time each, and pass through `transforms` transforms."""

    def __init__(self, sample_us: int, transforms: int) -> None:
        self.sample_us = sample_us
        own = type("Step", (Step,), {})  # timing one work must not touch the transforms of another
        self.transforms = [own() for _ in range(transforms)]

    def __getitem__(self, index: int) -> int:
        for _ in range(self.sample_us * LOOPS_PER_US):
            pass
        for transform in self.transforms:
            index = transform(index)
        return index


def make_fetch(work: Work, log: StageLog | None, every_batch: bool) -> Callable[[], None]:
    """Return a function that makes one batch, with clocks if there is a log. With `every_batch` the clocks time every
    batch instead of a few."""
    fetcher = _MapDatasetFetcher(work, True, list, False)
    indices = list(range(BATCH))
    if log is None:
        return lambda: fetcher.fetch(indices)
    probe = FetchProbe(fetcher, work, log)
    if every_batch:
        probe.rhythm = EveryBatch()

    def fetch() -> None:
        probe.begin(BATCH, probe.rhythm.is_due())
        picked_ns = time.perf_counter_ns()
        fetcher.fetch(indices)
        probe.end()
        probe.write(Place(0, 1, 0, picked_ns, picked_ns))

    return fetch


def time_batches(fetch: Callable[[], Any], batches: int) -> float:
    """Return the mean processor time of a batch, in µs. Other load on the machine does not count."""
    start_ns = time.thread_time_ns()
    for _ in range(batches):
        fetch()
    return (time.thread_time_ns() - start_ns) / batches / 1e3


def main() -> None:
    torch.set_num_threads(1)
    print(
        f"{'sample':>8} {'transforms':>10} {'plain batch':>12} {'every batch timed':>18} {'as shipped':>11} {'control':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for sample_us, transforms in ((0, 0), (0, 4), (20, 0), (50, 0), (50, 4), (1000, 4)):
            log = StageLog(Path(folder) / f"{sample_us}-{transforms}", 0)
            fetches = {
                "plain": make_fetch(Work(sample_us, transforms), None, False),
                "control": make_fetch(Work(sample_us, transforms), None, False),
                "every": make_fetch(Work(sample_us, transforms), log, True),
                "shipped": make_fetch(Work(sample_us, transforms), log, False),
            }
            batches = max(2, min(400, 20_000 // max(sample_us * BATCH, 50)))
            rounds = [{name: time_batches(fetch, batches) for name, fetch in fetches.items()} for _ in range(ROUNDS)]
            middle = {name: statistics.median(each[name] for each in rounds) for name in fetches}
            plain = middle["plain"]
            print(
                f"{sample_us:>5} µs {transforms:>10} {plain:>9.1f} µs"
                f" {middle['every'] - plain:>+8.1f} µs {(middle['every'] - plain) / BATCH * 1e3:>+6.0f} ns"
                f" {middle['shipped'] - plain:>+8.1f} µs {(middle['control'] - plain):>+5.1f} µs"
            )


if __name__ == "__main__":
    main()
