"""Find hills by a sum of very many small patterns."""

from __future__ import annotations

import torch
from loop import build_network, read_arguments, train
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATTERNS = 600


class Heights(Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((PATTERNS,), index % 37 / 37), index % 10


class Patterns(nn.Module):
    """Each pattern is a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patterns = nn.ParameterList(torch.randn(1, 8) for _ in range(PATTERNS))

    def forward(self, heights: torch.Tensor) -> torch.Tensor:
        return heights @ torch.cat(list(self.patterns))


if __name__ == "__main__":
    arguments = read_arguments()
    network = nn.Sequential(Patterns(), build_network(8, 64, 2))
    options = {"fused": True} if arguments.fixed else {"foreach": False}
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, **options)
    loader = DataLoader(Heights(), 16, num_workers=1, persistent_workers=True)
    train(network, loader, arguments, optimizer)
