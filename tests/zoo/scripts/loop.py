"""The training loop and the arguments that the scripts of this folder share."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from collector import Profiler

torch.set_num_threads(1)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, help="folder for the run; without it nothing is recorded")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    return parser.parse_args()


def build_network(inputs: int, width: int = 128, depth: int = 2, outputs: int = 10) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def train(model: nn.Module, loader: DataLoader, arguments: argparse.Namespace) -> None:
    """Train for that many steps, over as many epochs as it takes; print the mean length of a step."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    profiler = Profiler(arguments.output, window=None) if arguments.output else None
    started, done = time.perf_counter(), 0
    while done < arguments.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == arguments.steps:
                break
    print(f"{(time.perf_counter() - started) / done * 1e3:.2f} ms per step")
    if profiler is not None:
        profiler.analyse()
