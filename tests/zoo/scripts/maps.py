"""Classify tiles of a map that is kept as one compressed file per region."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from loop import build_network, read_arguments, train
from torch.utils.data import DataLoader, Dataset

REGIONS = 8
TILES = 128
SIDE = 32


def write_regions(folder: Path) -> None:
    chance = np.random.default_rng(0)
    for region in range(REGIONS):
        tiles = chance.integers(0, 64, (TILES, SIDE, SIDE), dtype=np.uint8)
        np.savez_compressed(folder / f"{region}.npz", tiles=tiles)
        np.save(folder / f"{region}.npy", tiles)


class Tiles(Dataset):
    def __init__(self, folder: Path, mapped: bool) -> None:
        self.folder = folder
        self.mapped = mapped

    def __len__(self) -> int:
        return REGIONS * TILES * 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        region, tile = index // TILES % REGIONS, index % TILES
        if self.mapped:
            pixels = np.load(self.folder / f"{region}.npy", mmap_mode="r")[tile]
        else:
            pixels = np.load(self.folder / f"{region}.npz")["tiles"][tile]
        return torch.tensor(pixels.reshape(-1), dtype=torch.float32) / 64, index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    with tempfile.TemporaryDirectory() as folder:
        write_regions(Path(folder))
        tiles = Tiles(Path(folder), mapped=arguments.fixed)
        loader = DataLoader(tiles, 32, num_workers=2, persistent_workers=True)
        train(build_network(SIDE * SIDE, 256, 2), loader, arguments)
