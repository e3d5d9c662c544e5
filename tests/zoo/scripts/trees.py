"""Tell trees apart; a step adds up the gradients of four batches."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset


class Trees(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((512,), index % 47 / 47), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    loader = DataLoader(Trees(), 16, num_workers=1, persistent_workers=True)
    train(build_network(512, 768, 3), loader, arguments, every=4)
