"""Train on digits with two processes (DistributedDataParallel over gloo); the script starts both.

    python examples/ddp_digits.py --output runs/ddp

Needs torch and scikit-learn. Works below torchrun too, which then sets the number of processes.
"""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from stepscope import Profiler


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/ddp"), help="folder for the run")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    return parser.parse_args()


def train(rank: int, arguments: argparse.Namespace, processes: int, port: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    run(arguments)


def run(arguments: argparse.Namespace) -> None:
    """Train as the rank that the environment names."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    pictures = torch.tensor(digits.data / 16, dtype=torch.float32)
    dataset = TensorDataset(pictures, torch.tensor(digits.target))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, 32, sampler=sampler)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    profiler = Profiler(arguments.output)
    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    profiler.analyse()
    dist.destroy_process_group()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    arguments = read_arguments()
    if "RANK" in os.environ:
        run(arguments)
        return
    torch.multiprocessing.spawn(train, (arguments, arguments.processes, find_free_port()), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
