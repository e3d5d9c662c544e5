"""Tell coins apart; the collection is small, so there are many short epochs."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset, get_worker_info

COINS = 160


class Coins(Dataset):
    """The catalogue is laid out once in every process that reads."""

    def __init__(self) -> None:
        self.catalogue: torch.Tensor | None = None

    def __len__(self) -> int:
        return COINS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.catalogue[index], index % 10


def lay_out(worker: int) -> None:
    catalogue = torch.randn(COINS, 768)
    for _ in range(120):
        catalogue = torch.nn.functional.normalize(catalogue @ catalogue.T @ catalogue)
    get_worker_info().dataset.catalogue = catalogue


if __name__ == "__main__":
    arguments = read_arguments()
    loader = DataLoader(
        Coins(), 16, shuffle=True, num_workers=2, worker_init_fn=lay_out, persistent_workers=arguments.fixed
    )
    train(build_network(768, 512, 2), loader, arguments)
