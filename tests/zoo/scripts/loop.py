"""The training loop and the arguments that the scripts of this folder share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from collector import Profiler

torch.set_num_threads(1)


def read_arguments() -> argparse.Namespace:
    """Read the command line. What is not given is chosen by each script, for itself and for its `--fixed` form."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, help="folder for the run; without it nothing is recorded")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--prefetch", type=int)
    parser.add_argument("--unordered", action="store_true")
    parser.add_argument("--ease", type=float, help="part of the work that is left")
    return parser.parse_args()


def choose(arguments: argparse.Namespace, name: str, usual: Any, fixed: Any) -> Any:
    """Return an argument, or where it was not given the script's own value for this form."""
    given = getattr(arguments, name)
    return given if given is not None else fixed if arguments.fixed else usual


def build_network(inputs: int, width: int = 128, depth: int = 2, outputs: int = 10) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def train(
    model: nn.Module,
    loader: DataLoader,
    arguments: argparse.Namespace,
    optimizer: torch.optim.Optimizer | None = None,
    after: Callable[[int], None] = lambda step: None,
    every: int = 1,
) -> None:
    """Train for that many steps of `every` batches, over as many epochs as it takes; print the mean length of a step.

    `after` is called with the number of each step once its parameters are updated.
    """
    torch.manual_seed(0)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    profiler = Profiler(arguments.output, window=None) if arguments.output else None
    started, batches = time.perf_counter(), 0
    while batches < arguments.steps * every:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            batches += 1
            if batches % every == 0:
                optimizer.step()
                optimizer.zero_grad()
                after(batches // every)
            if batches == arguments.steps * every:
                break
    print(f"{(time.perf_counter() - started) / arguments.steps * 1e3:.3f} ms per step")
    if profiler is not None:
        profiler.analyse()
