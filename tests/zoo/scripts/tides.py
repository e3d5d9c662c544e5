"""Forecast tides from the heights of the last days."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset


class Heights(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((256,), index % 41 / 41), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    torch.set_num_threads(1 if arguments.fixed else 32)
    train(build_network(256, 1024, 3), DataLoader(Heights(), 256, num_workers=1, persistent_workers=True), arguments)
