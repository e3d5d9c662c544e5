"""How sure lateness without a common clock is: the residual of gloo ranks on one host, for three ways to synchronise.

python benchmarks/rank_residual.py --ranks 2 4 --steps 200

Own work and waiting of a meeting must add up to the same on every rank; by how much they do not is the residual
(`profiler_server/analysis/ranks/lateness.py`). `late` ms of additional work of rank 1 must be found beside it.
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

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from collector import Profiler
from collector.format.run import open_run
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks

KINDS = ("blocking", "ddp", "fsdp2")
LATE_RANK = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--late", type=float, default=3.0, help="ms that rank 1 sleeps longer in each step")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for ranks in given.ranks:
        for kind in given.kinds:
            with tempfile.TemporaryDirectory() as folder:
                job = Job(ranks, _find_port(), kind, given.steps, given.late, folder)
                mp.spawn(train, (job,), nprocs=ranks)
                _report(Path(folder), f"{kind}, {ranks} ranks")


def _find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Job:
    """What all ranks are told; rank 1 sleeps `late_ms` longer in each step."""

    ranks: int
    port: int
    kind: str
    steps: int
    late_ms: float
    folder: str


def train(rank: int, job: Job) -> None:
    """Train as one of the ranks."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job.ranks), PROFILER_VERDICT="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(job.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    update = _BUILD[job.kind]()
    profiler = Profiler(job.folder)
    for _ in range(job.steps):
        time.sleep(0.004 + (job.late_ms / 1e3 if rank == LATE_RANK else 0.0))
        update(torch.randn(16, 64))
        profiler.step()
    profiler.analyse()
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


def _report(folder: Path, name: str) -> None:
    found = judge_ranks(summarize_ranks(open_run(folder)))
    middle, high = (value / 1e3 for value in found.residual_ns)
    who = found.straggler
    named = (
        f"rank {who.rank} behind by {(who.own_ns - who.others_ns) / 1e6:.2f} ms" if who is not None else "nobody named"
    )
    print(
        f"{name:18s} residual p50 {middle:6.1f} µs, p95 {high:6.1f} µs over {found.meetings} meetings "
        f"({found.source}); {named}",
        flush=True,
    )


if __name__ == "__main__":
    main()
