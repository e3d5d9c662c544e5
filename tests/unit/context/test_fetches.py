"""How many samples a batch has, whatever the batch is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from collector.context.loaders import count_samples

BATCH = torch.zeros(16, 3)


class _Refusing:
    @property
    def shape(self) -> Any:
        raise RuntimeError("not now")


@pytest.mark.parametrize("batch", [BATCH, [BATCH, 1], (BATCH,), {"x": BATCH}, [{"x": (BATCH,)}]])
def test_the_first_tensor_tells(batch: Any) -> None:
    assert count_samples(batch) == 16


def test_a_list_of_plain_values_is_as_long_as_it_is() -> None:
    assert count_samples([["a", "b", "c"], BATCH]) == 3


@pytest.mark.parametrize("batch", [None, [], {}, torch.tensor(1.0), object(), _Refusing(), [_Refusing()]])
def test_what_cannot_be_told_is_none(batch: Any) -> None:
    assert count_samples(batch) == 0


def test_what_lies_deeper_than_asked_is_not_looked_at() -> None:
    assert count_samples([BATCH], depth=1) == 16
    assert count_samples([{"x": BATCH}], depth=1) == 0
