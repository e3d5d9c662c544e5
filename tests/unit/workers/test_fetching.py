"""A timed fetcher reads the user's dataset exactly as torch would."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tests.support.recording import record


class Shadowed(Dataset[Any]):  # type: ignore[misc]
    """Holds an attribute of the name of the method, which indexing does not look at."""

    def __init__(self) -> None:
        self.__dict__["__getitem__"] = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


def test_an_attribute_in_the_way_of_the_method_is_overlooked(tmp_path: Any) -> None:
    seen: list[float] = []
    record(tmp_path, lambda: seen.extend(float(batch.sum()) for batch in DataLoader(Shadowed(), 2)))
    assert seen == [2.0, 10.0, 18.0, 26.0]
