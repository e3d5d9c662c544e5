"""Forecast the wind, and keep statistics of every parameter after each step."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset


class Winds(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((256,), index % 67 / 67), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    network = build_network(256, 512, 3)
    history: list[list[float]] = []

    def note(step: int) -> None:
        if not arguments.fixed or step % 50 == 0:
            history.append(
                [q for p in network.parameters() for q in p.detach().flatten()[:50_000].sort()[0][::500].tolist()]
            )

    train(network, DataLoader(Winds(), 16, num_workers=1, persistent_workers=True), arguments, after=note)
