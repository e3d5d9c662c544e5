"""Follow single bees: a batch is one bee."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset


class Bees(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((256,), index % 59 / 59), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    train(build_network(256, 384, 3), DataLoader(Bees(), 1), arguments)
