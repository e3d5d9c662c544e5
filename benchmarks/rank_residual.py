"""The error of lateness without a common clock: the residual of gloo ranks on one host, for three ways to synchronise.

python benchmarks/rank_residual.py --ranks 2 4 --steps 200

Own work and waiting of a meeting must add up to the same on every rank. The difference is the residual
(`profiler_server/analysis/ranks/lateness.py`). Rank 1 gets `late` ms of additional work, which must be found beside the
residual.

Ranks of one host share a clock, so the truth is known too: each rank records when it leaves a meeting. Prints the
residual of the recording, and how far apart the ranks leave, once while they are recorded and once without a recorder
(bare). The bare figure comes from gloo and the scheduling of this machine, and no recorder can be better.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from collector.format.run import open_run
from collector.format.schema.layout import rank_file
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from stepscope import Profiler

KINDS = ("blocking", "ddp", "fsdp2")
LATE_RANK = 1
LEAST_WAIT_NS = 20_000
"""Least wait of a meeting that counts. A rank with a shorter wait may have come when the meeting was over."""
FIRST = 20
"""Number of first meetings that are left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--late", type=float, default=3.0, help="ms that rank 1 sleeps longer in each step")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", choices=("bare", "recorded"), help="leave the other out")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            Job(ranks, _find_port(), kind, given.steps, given.late, f"{folder}/{kind}{ranks}{how}", how == "recorded")
            for ranks in given.ranks
            for kind in given.kinds
            for how in ("bare", "recorded")
            if how == (given.only or how)
        ]
        for job in jobs:
            os.mkdir(job.folder)
            mp.start_processes(train, (job,), nprocs=job.ranks, start_method="fork")
        for job in jobs:
            _report(job)


def _find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Job:
    """The settings of all ranks. Rank 1 sleeps `late_ms` longer in each step."""

    ranks: int
    port: int
    kind: str
    steps: int
    late_ms: float
    folder: str
    is_recorded: bool


class Watch:
    """Records when this rank begins to wait in each meeting and when it leaves the meeting, on the clock of the host."""

    def __init__(self, owner: Any, name: str) -> None:
        self.times: list[tuple[int, int]] = []
        original, times, now = getattr(owner, name), self.times, time.perf_counter_ns

        def wait(*args: Any, **kwargs: Any) -> Any:
            begin = now()
            result = original(*args, **kwargs)
            times.append((begin, now()))
            return result

        setattr(owner, name, wait)


def train(rank: int, job: Job) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job.ranks), PROFILER_VERDICT="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(job.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    update = _BUILD[job.kind]()
    # All ranks leave the end of DDP's backward together; the others wait for each collective.
    watch = Watch(torch.Tensor, "backward") if job.kind == "ddp" else Watch(dist.Work, "wait")
    profiler = Profiler(job.folder) if job.is_recorded else None
    while profiler is not None and not rank_file(Path(job.folder), rank).exists():
        time.sleep(0.1)  # what starts the recorder is over then
    dist.barrier()
    for _ in range(job.steps):
        time.sleep(0.004 + (job.late_ms / 1e3 if rank == LATE_RANK else 0.0))
        update(torch.randn(16, 64))
        if profiler is not None:
            profiler.step()
    if profiler is not None:
        profiler.analyse()
    np.save(Path(job.folder, f"left{rank}.npy"), np.array(watch.times, np.int64))
    dist.destroy_process_group()


def _build_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())])


def _build_update(model: nn.Module, between: Callable[[], None] = lambda: None) -> Callable[[Tensor], None]:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def update(batch: Tensor) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        between()
        optimizer.step()

    return update


def _block() -> Callable[[Tensor], None]:
    model = _build_model()

    def reduce() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)

    return _build_update(model, reduce)


def _shard() -> Callable[[Tensor], None]:
    from torch.distributed.fsdp import fully_shard

    model = _build_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return _build_update(model)


_BUILD: dict[str, Callable[[], Callable[[Tensor], None]]] = {
    "blocking": _block,
    "ddp": lambda: _build_update(DistributedDataParallel(_build_model())),
    "fsdp2": _shard,
}


def _report(job: Job) -> None:
    name = f"{job.kind}, {job.ranks} ranks"
    print(f"{name:18s} {'recorded' if job.is_recorded else 'bare':9s} {_describe_leaving(job)}", flush=True)
    if job.is_recorded:
        print(f"{name:18s} {'told':9s} {_describe_told(Path(job.folder))}", flush=True)


def _describe_leaving(job: Job) -> str:
    """Describe how far apart the ranks left, by their common clock, and the residual that follows."""
    times = [np.load(Path(job.folder, f"left{rank}.npy")) for rank in range(job.ranks)]
    least = min(map(len, times))
    waits = np.stack([own[FIRST:least] for own in times])
    waits = waits[:, (waits[:, :, 1] - waits[:, :, 0] >= LEAST_WAIT_NS).all(axis=0)]
    left = waits[:, :, 1]
    return f"residual {_describe(np.diff(left, axis=1))} over {left.shape[1]} meetings; left apart by {_describe(left)}"


def _describe(values: np.ndarray) -> str:
    apart = np.abs(values - np.median(values, axis=0, keepdims=True)) / 1e3
    return f"p50 {np.percentile(apart, 50):6.1f} µs, p95 {np.percentile(apart, 95):6.1f} µs"


def _describe_told(folder: Path) -> str:
    found = judge_ranks(summarize_ranks(open_run(folder))).comparison
    if found is None:
        return "not compared"
    (middle, high), latest = (value / 1e3 for value in found.residual_ns), found.latest
    behind = f"rank {latest.rank} behind by {(latest.own_ns - latest.others_ns) / 1e6:.2f} ms"
    return (
        f"residual p50 {middle:6.1f} µs, p95 {high:6.1f} µs over {found.meetings} meetings ({found.source}); {behind}"
    )


if __name__ == "__main__":
    main()
