"""Tell kinds of cloud apart on pictures that a web service hands out."""

from __future__ import annotations

import time

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

SERVICE_S = 0.004


class Clouds(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(SERVICE_S)
        return torch.full((512,), index % 31 / 31), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    loader = DataLoader(Clouds(), 16, num_workers=choose(arguments, "workers", 1, 6), persistent_workers=True)
    train(build_network(512, 2048, 3), loader, arguments)
