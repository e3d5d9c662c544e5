"""Tell leaves apart by the histogram of their outline."""

from __future__ import annotations

import random

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

POINTS = 20_000
BINS = 64


class Outline:
    """Count angles into bins, one after the other."""

    def __call__(self, angles: torch.Tensor) -> torch.Tensor:
        counts = [0] * BINS
        for angle in angles.tolist():
            counts[int(angle * BINS)] += 1
        return torch.tensor(counts, dtype=torch.float32) / len(angles)


class FastOutline:
    """Count angles into bins, all at once."""

    def __call__(self, angles: torch.Tensor) -> torch.Tensor:
        return torch.histc(angles, BINS, 0.0, 1.0) / len(angles)


class Leaves(Dataset):
    def __init__(self, transform, points: int) -> None:
        self.transform = transform
        self.shapes = torch.rand(32, points)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.shapes[index % 32]), random.randrange(10)


if __name__ == "__main__":
    arguments = read_arguments()
    leaves = Leaves(FastOutline() if arguments.fixed else Outline(), int(choose(arguments, "ease", 1.0, 1.0) * POINTS))
    train(build_network(BINS, 512, 3), DataLoader(leaves, 16, num_workers=2, persistent_workers=True), arguments)
