"""Sort stones by a few figures each, all of them held in two tensors."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Stones(Dataset):
    def __init__(self) -> None:
        self.figures = torch.rand(50_000, 64)
        self.kinds = torch.randint(10, (50_000,))

    def __len__(self) -> int:
        return len(self.figures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.figures[index], self.kinds[index]


if __name__ == "__main__":
    arguments = read_arguments()
    stones = Stones()
    if arguments.fixed:
        loader = DataLoader(stones, batch_size=None, sampler=BatchSampler(RandomSampler(stones), 512, drop_last=False))
    else:
        loader = DataLoader(stones, 512, shuffle=True)
    train(build_network(64, 384, 3), loader, arguments)
