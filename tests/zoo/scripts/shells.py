"""Sort shells; the pictures come from a store that answers in bursts."""

from __future__ import annotations

import time

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

PAUSE_S = 0.09
BURST = 64


class Shells(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % BURST == BURST - 1:
            time.sleep(PAUSE_S)
        return torch.full((512,), index % 61 / 61), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    loader = DataLoader(
        Shells(),
        16,
        num_workers=choose(arguments, "workers", 1, 1),
        prefetch_factor=choose(arguments, "prefetch", 1, 8),
        in_order=not arguments.unordered,
        persistent_workers=True,
    )
    train(build_network(512, 2048, 3), loader, arguments)
