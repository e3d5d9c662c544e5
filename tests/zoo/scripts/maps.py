"""Classify tiles of a map that is kept as one compressed file per region."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

REGIONS = 8
TILES = 128
SIDE = 32


def write_regions(folder: Path, tiles_each: int) -> None:
    chance = np.random.default_rng(0)
    for region in range(REGIONS):
        tiles = chance.integers(0, 64, (tiles_each, SIDE, SIDE), dtype=np.uint8)
        np.savez_compressed(folder / f"{region}.npz", tiles=tiles)
        np.save(folder / f"{region}.npy", tiles)


class Tiles(Dataset):
    def __init__(self, folder: Path, tiles_each: int, mapped: bool) -> None:
        self.folder = folder
        self.tiles_each = tiles_each
        self.mapped = mapped

    def __len__(self) -> int:
        return REGIONS * self.tiles_each * 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        region, tile = index // self.tiles_each % REGIONS, index % self.tiles_each
        if self.mapped:
            pixels = np.load(self.folder / f"{region}.npy", mmap_mode="r")[tile]
        else:
            pixels = np.load(self.folder / f"{region}.npz")["tiles"][tile]
        return torch.tensor(pixels.reshape(-1), dtype=torch.float32) / 64, index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    with tempfile.TemporaryDirectory() as folder:
        tiles_each = int(choose(arguments, "ease", 1.0, 1.0) * TILES)
        write_regions(Path(folder), tiles_each)
        tiles = Tiles(Path(folder), tiles_each, mapped=arguments.fixed)
        loader = DataLoader(tiles, 32, num_workers=2, persistent_workers=True)
        train(build_network(SIDE * SIDE, 1024, 2), loader, arguments)
