"""Sort stars by their spectrum, with a network that is large for the machine."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((1024,), index % 53 / 53), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    train(build_network(1024, 1536, 4), DataLoader(Spectra(), 64, num_workers=1, persistent_workers=True), arguments)
