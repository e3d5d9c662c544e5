"""Guess the writer of a letter from its words."""

from __future__ import annotations

import random

import torch
from loop import build_network, read_arguments, train
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = 5000
LONGEST = 400


class Letters(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[list[int], int]:
        length = random.randint(LONGEST // 2, LONGEST)
        return torch.randint(WORDS, (length,)).tolist(), index % 10


def fill_table(letters: list[tuple[list[int], int]]) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.zeros(len(letters), LONGEST, dtype=torch.long)
    for row, (words, _) in enumerate(letters):
        for column, word in enumerate(words):
            table[row, column] = word
    return table, torch.tensor([writer for _, writer in letters])


def pad_table(letters: list[tuple[list[int], int]]) -> tuple[torch.Tensor, torch.Tensor]:
    table = pad_sequence([torch.tensor(words) for words, _ in letters], batch_first=True)
    return table, torch.tensor([writer for _, writer in letters])


if __name__ == "__main__":
    arguments = read_arguments()
    loader = DataLoader(
        Letters(), 16, num_workers=2, persistent_workers=True, collate_fn=pad_table if arguments.fixed else fill_table
    )
    train(nn.Sequential(nn.EmbeddingBag(WORDS, 256), build_network(256, 768)), loader, arguments)
