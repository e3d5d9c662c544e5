"""Datasets whose stages take known times, for loaders under test. Here by name, so that spawned workers find them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Sleep:
    """A transform that takes so many milliseconds."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, sample: Any) -> Any:
        time.sleep(self.ms / 1e3)
        return sample


class Double:
    def __call__(self, sample: Any) -> Any:
        return sample * 2


class Compose:
    def __init__(self, *transforms: Callable[..., Any]) -> None:
        self.transforms = list(transforms)

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


def add_one(sample: Any) -> Any:
    return sample + 1


def slow_collate(samples: list[Any]) -> torch.Tensor:
    time.sleep(0.06)
    return torch.stack(samples)


class Samples(Dataset[Any]):  # type: ignore[misc]
    """`size` samples, each read in `read_ms` (sample `slow_index` in 0.3 s), then transformed."""

    def __init__(self, size: int = 24, read_ms: float = 0.2, transform: Any = None, slow_index: int = -1) -> None:
        self.size = size
        self.read_ms = read_ms
        self.transform = transform
        self.slow_index = slow_index

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.3 if index == self.slow_index else self.read_ms / 1e3)
        sample = torch.ones(4) * index
        return sample if self.transform is None else self.transform(sample)


class Broken(Samples):
    """Cannot read sample 5."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise ValueError("sample 5 is damaged")
        return super().__getitem__(index)


class Augmented(Samples):
    """Its transform is a method."""

    def augment(self, sample: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002)
        return sample

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.augment(super().__getitem__(index))


class WhoAmI(Samples):
    """Returns whether the worker shows the user's own dataset, and its transform of the user's own type."""

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        own = info is None or (info.dataset is self and type(info.dataset) is WhoAmI)
        return torch.tensor([own and type(self.transform) is Compose])


class Uneven(IterableDataset[Any]):  # type: ignore[misc]
    """Worker 0 has 20 samples, the others 5."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for number in range(20 if info is None or info.id == 0 else 5):
            time.sleep(0.001)
            yield torch.ones(4) * number


class Numbers(Dataset[Any]):  # type: ignore[misc]
    """Samples that cost nothing."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


class Tags(Samples):
    """Samples of 400 kB that travel through the pipe, not through shared memory."""

    def __getitem__(self, index: int) -> Any:
        return bytes(400_000)


class Profiled(Dataset[Any]):  # type: ignore[misc]
    """One sample: whether the profiler that this process has inherited records what is done here."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.ones(2) * 3
        events = torch._C._autograd._disable_profiler().events()
        return torch.tensor("aten::mul" in {event.name() for event in events})
