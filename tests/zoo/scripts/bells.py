"""Tell bells apart by their sound, and keep what was learnt safe."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

EVERY = 4


class Bells(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((1024,), index % 19 / 19), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    network = build_network(1024, 1024, 3)
    every = int(EVERY / choose(arguments, "ease", 1.0, 0.01))
    with tempfile.TemporaryDirectory() as folder:

        def keep(step: int) -> None:
            if step % every == 0:
                for copy in ("latest", "best", "spare"):
                    torch.save(network.state_dict(), Path(folder) / f"{copy}.pt")

        loader = DataLoader(Bells(), 16, num_workers=1, persistent_workers=True)
        train(network, loader, arguments, after=keep)
