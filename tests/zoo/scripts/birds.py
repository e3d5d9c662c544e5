"""Sort recordings of birds that lie on a file server."""

from __future__ import annotations

import time

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

SERVER_S = 0.002


class Recordings(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(SERVER_S)
        return torch.full((512,), index % 97 / 97), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    workers = choose(arguments, "workers", 0, 3)
    loader = DataLoader(Recordings(), 16, num_workers=workers, persistent_workers=workers > 0)
    train(build_network(512, 2048, 3), loader, arguments)
