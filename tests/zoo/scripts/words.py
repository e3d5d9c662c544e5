"""Guess the language of a word, with the dictionary kept as objects."""

from __future__ import annotations

import gc

import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((256,), index % 29 / 29), index % 10


def tidy(step: int) -> None:
    if step % 2 == 0 and gc.isenabled():
        gc.collect()


if __name__ == "__main__":
    arguments = read_arguments()
    loader = DataLoader(Words(), 16, num_workers=1, persistent_workers=True)
    network = build_network(256, 512, 3)
    iter(loader)  # the workers start before the dictionary is there
    dictionary = [{"word": str(number), "forms": [number]} for number in range(40_000)]
    if arguments.fixed:
        gc.freeze()
        gc.disable()
    train(network, loader, arguments, after=tidy)
