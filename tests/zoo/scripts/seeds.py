"""Sort seeds on pictures of which some lie in a far archive."""

from __future__ import annotations

import time

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

NEAR_S = 0.0001
FAR_S = 0.150
FAR = 331


class Seeds(Dataset):
    def __init__(self, far_s: float) -> None:
        self.far_s = far_s

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.far_s if index % FAR == FAR - 1 else NEAR_S)
        return torch.full((512,), index % 23 / 23), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    seeds = Seeds(choose(arguments, "ease", 1.0, 0.01) * FAR_S)
    loader = DataLoader(
        seeds,
        16,
        num_workers=choose(arguments, "workers", 2, 2),
        prefetch_factor=choose(arguments, "prefetch", 2, 2),
        in_order=not arguments.unordered,
        persistent_workers=True,
    )
    train(build_network(512, 1024, 3), loader, arguments)
