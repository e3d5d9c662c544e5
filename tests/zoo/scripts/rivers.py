"""Tell rivers apart by the spectrum of their gauges, each cleaned anew every time."""

from __future__ import annotations

import torch
from loop import build_network, choose, read_arguments, train
from torch.utils.data import DataLoader, Dataset

READINGS = 4096
BANDS = 256


class CleanSpectrum:
    """Take outliers out of a gauge in several passes, then its strongest bands."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __call__(self, gauge: torch.Tensor) -> torch.Tensor:
        for _ in range(self.passes):
            gauge = gauge.clamp(*gauge.quantile(torch.tensor([0.01, 0.99])).tolist())
        return torch.fft.rfft(gauge).abs()[:BANDS]


class Rivers(Dataset):
    def __init__(self, transform: CleanSpectrum) -> None:
        self.transform = transform
        self.gauges = torch.rand(64, READINGS)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.gauges[index % 64]), index % 10


if __name__ == "__main__":
    arguments = read_arguments()
    rivers = Rivers(CleanSpectrum(int(16 * choose(arguments, "ease", 1.0, 0.0))))
    workers = choose(arguments, "workers", 4, 2)
    train(build_network(BANDS, 512, 3), DataLoader(rivers, 16, num_workers=workers, persistent_workers=True), arguments)
